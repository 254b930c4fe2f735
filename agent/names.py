"""Every name that users, dashboards or other programs see. They are API: add, never rename."""

DOMAIN = "dra-agent.io"
PRODUCT = "dra-node-agent"

# Config
CONFIG_API_VERSION = f"{DOMAIN}/v1alpha1"
CONFIG_KIND = "AgentConfig"
RULES_KIND = "FailureRules"
ENV_PREFIX = "DRA_AGENT_"

# Pod conditions. Job podFailurePolicy can match only type and status, hence the last two.
CONDITION_PREPARED = f"{DOMAIN}/DevicesPrepared"
CONDITION_DEVICE_FAULT = f"{DOMAIN}/DeviceFault"
CONDITION_INVALID_PARAMETERS = f"{DOMAIN}/InvalidParameters"
REASON_ALL_FAILED = "AllDevicesFailed"
REASON_SOME_FAILED = "SomeDevicesFailed"
REASON_RETRYING = "Retrying"
REASON_HELD_BACK = "HeldBack"
REASON_PREPARED = "Prepared"

# Pod phase reason and the Event's reason and reporter
PHASE_REASON = "DevicePrepareFailed"
EVENT_REASON = "DevicePrepareFailed"
EVENT_CONTROLLER = f"{DOMAIN}/node-agent"

# Annotations (both written through pods/status)
ANNOTATION_FAILURES = f"{DOMAIN}/device-failures"
ANNOTATION_NUDGE = f"{DOMAIN}/nudge"
ANNOTATION_LIMIT = 16 * 1024  # bytes

# Sockets
SOCKET_PREFIX = "dra-agent~"
ENDPOINT_DIR = DOMAIN  # below <kubelet root>/plugins
LOCK_FILE = "lock"

# gRPC methods, as on the wire
SERVICE_V1 = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
SERVICE_V1BETA1 = "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"
PREPARE = "NodePrepareResources"
UNPREPARE = "NodeUnprepareResources"
REGISTRATION_GET_INFO = "/pluginregistration.Registration/GetInfo"
REGISTRATION_NOTIFY = "/pluginregistration.Registration/NotifyRegistrationStatus"
PLUGIN_TYPE = "DRAPlugin"
# What drivers list in supported_versions -> the gRPC service that kubelet then calls
PLUGIN_SERVICES = {"v1.DRAPlugin": SERVICE_V1, "v1beta1.DRAPlugin": SERVICE_V1BETA1}
HEALTH_METHODS = (
    "/v1.DRAResourceHealth/NodeWatchResources",
    "/v1alpha1.DRAResourceHealth/NodeWatchResources",
)

# Answered by the agent itself on every endpoint: the self-dial of /livez
PING_METHOD = f"/{DOMAIN}.Agent/Ping"

# Span attributes: RPC names of the stable OpenTelemetry conventions 1.45.0, which the Python
# package does not carry yet; resource claims have no convention, so those are our own.
OTEL_SCHEMA_URL = "https://opentelemetry.io/schemas/1.45.0"
ATTR_RPC_SYSTEM = "rpc.system.name"
ATTR_RPC_METHOD = "rpc.method"
ATTR_RPC_METHOD_ORIGINAL = "rpc.method_original"
ATTR_RPC_STATUS = "rpc.status_code"
ATTR_ERROR_TYPE = "error.type"
ATTR_SERVER_ADDRESS = "server.address"
ATTR_PEER_ADDRESS = "network.peer.address"
ATTR_DRIVER = "dra.driver.name"
ATTR_CLAIM_UID = "dra.claim.uid"
ATTR_CLAIM_NAME = "dra.claim.name"
ATTR_CLAIM_NAMESPACE = "dra.claim.namespace"
ATTR_CLAIM_COUNT = "dra.claim.count"
ATTR_VERDICT = "dra.verdict"
ATTR_CULPRIT = "dra.culprit"
ATTR_RULE = "dra.rule"
ATTR_DEVICE = "dra.device"
ATTR_ATTEMPT = "dra.attempt.number"
ATTR_ATTEMPTS = "dra.attempts"
