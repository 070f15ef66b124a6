from __future__ import annotations

import os
import socket

import pytest

from perfci.embedded import ports
from perfci.errors import ServiceError


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_in_use_is_refused_with_its_number_its_owner_and_the_setting(address: str) -> None:
    with socket.socket() as taken:
        taken.bind((address, 0))
        taken.listen()
        port = taken.getsockname()[1]
        expected = rf"port {port} is in use by .* \(process {os.getpid()}\); .* service\.airflow_port in perfci\.toml"
        with pytest.raises(ServiceError, match=expected):
            ports.wanted(port, setting="service.airflow_port")


def test_a_free_port_is_taken_as_asked_for_and_zero_means_any() -> None:
    port = ports.free()
    assert ports.wanted(port, setting="service.airflow_port") == port
    assert ports.usable(ports.wanted(0, setting="service.airflow_port"))


@pytest.mark.parametrize("port", [-1, 65536])
def test_what_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(ServiceError, match=f"service.airflow_port = {port} is no port"):
        ports.wanted(port, setting="service.airflow_port")
