"""Studies: entrants x seeds become one table, one verdict, one page; jobs run here or on a cluster."""
