"""Pictures drawn from the code: the statuses of each contract, the packages, the flow of data."""


def pictures() -> dict[str, str]:
    return {}
