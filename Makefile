# make demo: a first look, about four minutes on two cores; leaves report.html
# make test: lint, types, tests
# Both set up everything in .venv; all they need is python3 (>= 3.11) with venv and pip.
.PHONY: demo test
demo test:
	@./run $@
