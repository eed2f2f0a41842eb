"""`detent doctor` and `migrate` look at the server that can be written, also where the first one named says nothing."""

from urllib.parse import urlsplit

import pytest

from detent.cli.diagnose.doctor_postgres import read_facts
from support.servers.databases import Database
from support.servers.proxy import Proxy


@pytest.mark.long
def test_a_silent_host_does_not_take_the_time_of_the_others(database: Database) -> None:
    place = urlsplit(database.url)
    assert place.port is not None
    with Proxy(place.port) as proxy:
        proxy.go_silent()
        hosts = f"{place.hostname}:{proxy.port},{place.hostname}:{place.port}"
        facts, trouble = read_facts(f"postgresql://{place.username}@{hosts}{place.path}")
    assert trouble is None
    assert facts["schema"] >= 1
