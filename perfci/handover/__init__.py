"""The node's half of the hand-over: fetch a job's sources, deliver its results. Outbound HTTP is all that it needs.

A result lies in the outgoing folder until the server has said that it has it. A server that is away is asked again,
with growing waits; what it refuses is kept beside its reason.
"""

from perfci.handover.client import Patience, Refused, Unreachable, received
from perfci.handover.deliveries import deliver
from perfci.handover.parcels import Parcel, parcel
from perfci.handover.sources import fetch

__all__ = ["Parcel", "Patience", "Refused", "Unreachable", "deliver", "fetch", "parcel", "received"]
