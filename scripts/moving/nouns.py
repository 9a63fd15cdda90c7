# class -> noun for a single value; KEEP names are left
KEEP = {"before", "now", "ours", "theirs", "found", "held", "pending", "ready", "self", "cls", "chosen", "usable", "dropped", "own", "latest", "first", "last", "n"}
NOUN = dict(l.split() for l in """
Acl acl
AclAccess access
AclContext context
AdvisorRule rule
AdviceRequest request
AdviceResult advice
AlarmSection section
ApplicationNeeds needs
AuditRow row
BackgroundCluster cluster
BlindSpot blind_spot
BlindSpotCollector blind_spots
BlockReader blocks
BreakerSelection selection
BrokerAddressing addressing
BrokerConnection broker
BrokerPorts ports
BrokerSnapshot broker
BufferPool buffer_pool
ChosenSetting choice
CircuitBreakers breakers
ClientAudit audit
ClientFinding finding
ClientPrincipal principal
ClientUsage usage
Cluster cluster
ClusterComparison comparison
ClusterLogin login
ClusterMetadata metadata
ClusterProducer producer
ClusterSnapshot snapshot
CompareMode mode
CompareProgress progress
CompareRange offset_range
CompareResult result
Complaints complaints
ConfigEntry entry
Conflict conflict
ConnectedClient client
Connection connection
Coordinator coordinator
CoordinatorServer coordinator
DeferredCleanup cleanup
DirectionResult direction
Discovery discovery
DroppedRecords dropped
EffectiveLink effective
ExplorationRequest request
FailbackRequest request
FencedProducer fenced
FetchScheduler scheduler
Finding finding
FirstHome first_home
FollowerFetch follower_fetch
FrameReader frame_reader
GroupOnBothSides group
GroupPosition position
GroupPositions positions
GroupState group
GroupSync sync
GroupsHomeRecords records
Handoff handoff
HomeAnnouncer announcer
HomeChange change
HomeEvidence evidence
HomeRecord record
HomeSubscriber subscriber
HomesTopic homes_topic
HomesUpdate update
InFlightRequests in_flight
IncidentLog incident_log
KafkaCluster cluster
KnownHomes known
LagStatus lag
LastBatch last_batch
LeaderQuery query
LeaseEpoch epoch
LeaseKeeper keeper
LifecycleState state
LinkClients clients
LinkContext context
LinkController controller
LinkIdentity identity
LinkRemark remark
LinkStats stats
LinkStatus status
LogEndsSnapshot log_ends
LossInputs inputs
MetricFamilies metrics
ModelAction action
ModelConfig config
MoveGroupOffsets request
MoveGroups request
NewestHeartbeat heartbeat
NotCompared not_compared
OffsetGoal goal
OffsetKind kind
OffsetQuery query
OffsetResets resets
OffsetResetPlan plan
OffsetRuns offset_runs
OldHomePartition partition
OutgoingBatch batch
PartitionConfig config
PartitionIncident incident
PartitionLag lag
PartitionLeaders leaders
PartitionMetadata partition
PartitionProgress progress
PartitionReplicator replicator
PartitionReport report
PartitionScan scan
PartitionSnapshot partition
PartitionStopped stopped
PartitionView partition
PartitionDelayRow row
PendingQueue pending
Plan plan
PlannedCommit commit
Playback playback
PooledBuffer buffer
ProcessIdentity identity
ProducerRoute route
ProgressLog progress_log
ProgressRecord record
ProgressStore progress_store
ProofOptions options
ProofRequest request
ProofRow row
PropertyValue value
ProxiedCluster cluster
ProxyConnection connection
ProxyContext context
ProxyStream stream
QueuedTask task
RawSection raw
RepeatFilter repeat_filter
ReplicatedPosition position
ReportIncident incident
ResetOffsets request
ResetPartition partition
ResponseSlot slot
ResumeAt resume
RetryPolicy retry
RoutingTable table
RunningLink link
SendQueue queue
SendSpool spool
SessionCheck check
Severity severity
SharedFetchMember member
SourceConnection connection
SourceProducer producer
SpoolReport report
StopRequest request
StoppedPartition stopped
StoreClaim claim
SwitchCaller caller
SwitchPlan plan
SwitchPlanRequest request
SwitchState state
SwitchStep step
SwitchView view
SyncRoundResult result
SyncRules rules
SyncState sync_state
TargetAdmin admin
TargetProducer producer
TargetState state
TaskAssignment assignment
TaskAttempt attempt
TaskAttempts attempts
TaskConfig config
TaskConnection connection
TaskGroupAttempt attempt
TaskGroupAttemptId attempt_id
TaskOwnership ownership
TaskPartitions partitions
TaskReport report
TaskRunner runner
TopicClaim claim
TopicMetadata topic
TopicMove move
TopicObservation observation
TopicPartition partition
TopicSnapshot topic
TopicView topic
TrafficCounter counter
TrafficQuery query
TrafficTable traffic
TranslationRequest request
TwinRange offset_range
TwinRow row
TwinshoreError error
UnconfirmedSends unconfirmed
UnreplicatedRange offset_range
UnreplicatedRecord record
WarningQueue warnings
WatchedCluster cluster
WorkerProcess worker
WriteBlock block
ZombieRequests zombies
_Outage outage
Incident incident
WriteTo write
Link link
TwinPreview preview
""".split("\n") if l.strip())

PAIRS = {("twin", "TopicPartition"): None, ("parts", "list[TopicPartition]"): "partitions", ("parts", "Iterable[TopicPartition]"): "partitions",
 ("lane", "TaskPartitions"): "partitions", ("lanes", "dict[None,TaskAttempts]"): "attempts", ("tides", "dict[TaskGroupAttemptId,TaskGroupAttempt]"): "attempts",
 ("tracks", "dict[TopicPartition,PartitionReplicator]"): "replicators", ("tracks", "Mapping[TopicPartition,PartitionReplicator]"): "replicators", ("tracks", "dict[None,PartitionReplicator]"): "replicators",
 ("tracks", "dict[TopicPartition,PartitionConfig]"): "configs", ("lines", "Mapping[str,HomeRecord]"): "records", ("lines", "list[HomeRecord]"): "records", ("lines", "dict[str,HomeRecord]"): "records",
 ("posts", "dict[None,TaskAssignment]"): "assignments", ("views", "dict[None,PartitionLag]"): "lags", ("books", "dict[str,TopicIndex]"): "indexes", ("book", "TopicIndex"): "index",
 ("notes", "dict[str,HomesTopic]"): "homes_topics", ("entries", "dict[str,GroupState]"): "groups", ("uses", "dict[None,ClientUsage]"): "usages", ("live", "LinkStats"): "stats", ("live", "dict[str,LinkStats]"): "stats",
 ("seen", "dict[str,TopicMetadata]"): "topics", ("there", "dict[str,TopicMetadata]"): "topics", ("seen", "dict[str,GroupOnBothSides]"): "groups", ("refused", "dict[str,KafkaError]"): "errors", ("silent", "dict[str,KafkaError]"): None,
 ("failed", "dict[TopicPartition,KafkaError]"): None, ("refused", "TwinshoreError"): "refusal", ("password", "Secret"): None, ("back", "Link"): None, ("carrier", "Link"): None, ("into", "list[Link]"): None,
 ("old", "KafkaCluster"): None, ("new", "KafkaCluster"): None, ("path", "tuple[Hop]"): None, ("wrong", "Complaints"): "complaints", ("term", "LeaseEpoch"): "epoch", ("stopped", "PartitionIncident"): "incident",
 ("hands", "TargetAdmin"): "admin", ("away", "_Outage"): "outage", ("note", "TwinAnchors"): "anchors", ("birth", "FirstHome"): "first_home", ("memory", "LifecycleState"): "state", ("moves", "ConsumerRouter"): "router", ("moves", "ProducerRouter"): "router",
 ("deeds", "tuple[SwitchStep]"): "steps", ("handovers", "tuple[Handoff]"): "handoffs", ("debt", "DeferredCleanup"): "cleanup", ("grant", "WriteLease"): "lease", ("jobs", "TaskAttempts"): "attempts", ("seat", "SharedFetchMember"): "member",
 ("reading", "SharedFetch"): "shared_fetch", ("pages", "BlockReader"): "blocks", ("desk", "CoordinatorServer"): "coordinator", ("relay", "TaskOwnership"): "ownership", ("centre", "HomeTracker"): "tracker", ("turn", "ResponseSlot"): "slot",
 ("house", "ProxyContext"): "context", ("pair", "ProxyConnection"): "connection", ("guest", "ConnectedClient"): "client", ("guest", "TaskConnection"): "connection", ("stake", "LossInputs"): "inputs",
}
VAGUE = {"one","asked","told","seen","look","looked","word","words","wish","wishes","led","said","answer","line","entry","place","spot","part","parts","way","use","told","named","record","track","deed","act","known","meant","planned","at","order","side","found_","setup","flow","layout","view","tail","house","near","desk","box","eyes","flows","sheet","ends","lack","conduct","halt","hold","seat","lane","once","doubts","strays","waiting","following","follow","book","post","pump","relay","receipt","receipts","account","route","upstream","framer","fetches","exchange","weight","ledger","extents","stretch","wanted","turn","patience","who","beside","question","handed","comparing","asking","shut","begun","n_","whole_","given","written","setting","client","tally","holder","notes","go","rest","progress","proxies","asker","core","homing","near","reach","beat","note","driver","live","losing","stands","patience","explored","warned","status_","memory","rounds","drop","which","some","rows","unseen","handovers","places","watches","uncut","units","parcel","tide","job","jobs","scout","unheard","grant","mark","claim","why"}
def SURE(bare): return bare in VAGUE
NOATTR = {("SwitchState","deed"),("Link","follow"),("GroupView","parts"),("Finding","weight"),("ClientFinding","weight"),("Advice","unseen"),("ClientAudit","unseen"),("ClusterSnapshot","unseen"),("ModelEvent","deed"),("SwitchPlanStep","deed"),("TrafficLine","flow"),("TrafficRow","flow"),("HomeConflict","one"),("ConsumerGroupSnapshot","places")}
DEFAULT = {"one","asked","seen","told","wish","look","lane","deed","word","said","track","entry","looked","use"}
RESERVED = {"link_error","type","id","list","set"}

ATTRS = {("MirrorSettings","lanes"):"tasks_per_link", ("MirrorSettings","tasks"):"spark_tasks"}
