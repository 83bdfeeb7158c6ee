"""All planted faults."""

from tests.simulation.planted.endings import ENDINGS
from tests.simulation.planted.family import FAMILY, LOAD_AND_LOSSES
from tests.simulation.planted.library import LIBRARY
from tests.simulation.planted.quorum import QUORUM
from tests.simulation.planted.scripts import SCRIPTS
from tests.simulation.planted.servers import SERVERS
from tests.simulation.planted.tickets import TICKETS

FAULTS = (*SCRIPTS, *FAMILY, *LOAD_AND_LOSSES, *LIBRARY, *ENDINGS, *QUORUM, *SERVERS, *TICKETS)
