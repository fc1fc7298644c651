"""The public names of the collection, each listed once; ``exports`` loads them on first use."""

from shuffledp.collection.device import AuthorBudget as AuthorBudget
from shuffledp.collection.device import Client as Client
from shuffledp.collection.device import Connection as Connection
from shuffledp.collection.device import DeviceBudget as DeviceBudget
from shuffledp.collection.device import GatewayKey as GatewayKey
from shuffledp.collection.device import ObliviousConnection as ObliviousConnection
from shuffledp.collection.device import Patience as Patience
from shuffledp.collection.device import Policy as Policy
from shuffledp.collection.device import State as State
from shuffledp.collection.device import sealed_report as sealed_report
from shuffledp.collection.task.task import SignedTask as SignedTask
from shuffledp.collection.task.task import Task as Task
from shuffledp.collection.task.wire_version_2 import ShufflerKeys as ShufflerKeys
from shuffledp.collection.task.wire_version_2 import WireVersion2 as WireVersion2
from shuffledp.collection.wire.formats import Manifest as Manifest
from shuffledp.collection.wire.formats import ReportFormat as ReportFormat
from shuffledp.collection.wire.keys import SealingKey as SealingKey
from shuffledp.collection.wire.keys import SealingPublicKey as SealingPublicKey
from shuffledp.collection.wire.keys import SigningKey as SigningKey
from shuffledp.collection.wire.keys import VerifyingKey as VerifyingKey
from shuffledp.collection.wire.privacy_pass import TokenIssuer as TokenIssuer
