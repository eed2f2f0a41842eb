"""The tables of the options of jobs and schedules. Python, the command line, REST and OpenAPI are made from them."""
