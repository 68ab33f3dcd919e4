# make demo: a first look, about three minutes on two cores; leaves report.html
# make test: lint, types, tests
# make docs: the documentation as a site in site/
# make peers: the suites of other libraries on our models
# All set up what they need in .venv; all they ask for is python3 (>= 3.11) with venv and pip.
.PHONY: demo test docs peers
demo test docs peers:
	@./run $@
