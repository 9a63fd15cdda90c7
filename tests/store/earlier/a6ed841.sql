PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE twinshore_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT twinshore_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO twinshore_schema VALUES('0006');
CREATE TABLE leases (
	name VARCHAR(512) NOT NULL, 
	owner VARCHAR(255) NOT NULL, 
	generation BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	ttl_ms BIGINT NOT NULL, 
	released BOOLEAN NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (name)
);
INSERT INTO leases VALUES('link east->west','host1 process 5602 8e512038',1,70,4000,1);
CREATE TABLE link_identities (
	link VARCHAR(130) NOT NULL, 
	producer_id BIGINT NOT NULL, 
	producer_epoch BIGINT NOT NULL, 
	source_cluster_id VARCHAR(255) NOT NULL, 
	target_cluster_id VARCHAR(255) NOT NULL, 
	CONSTRAINT pk_link_identities PRIMARY KEY (link)
);
INSERT INTO link_identities VALUES('east->west',0,0,'cRUZ-7dkSO-SLyZaI4j_cg','K1Il8yW8Rh265yi-fVB7Zg');
CREATE TABLE twins (
	link VARCHAR(130) NOT NULL, 
	topic VARCHAR(249) NOT NULL, 
	partition INTEGER NOT NULL, 
	source_topic_id VARCHAR(64) NOT NULL, 
	target_topic_id VARCHAR(64) NOT NULL, 
	anchor_offset BIGINT NOT NULL, 
	anchor_sequence BIGINT NOT NULL, 
	created_ms BIGINT NOT NULL, 
	CONSTRAINT pk_twins PRIMARY KEY (link, topic, partition)
);
INSERT INTO twins VALUES('east->west','orders',0,'610982ccebcf46e5b70a2644e656afe3','0ac389ed89104bc79a97a3ccea5ccc5c',0,0,1795566610894);
INSERT INTO twins VALUES('east->west','orders',1,'610982ccebcf46e5b70a2644e656afe3','0ac389ed89104bc79a97a3ccea5ccc5c',0,0,1795566610894);
INSERT INTO twins VALUES('east->west','payments',0,'f66641ab4b704454acb95be9163ea484','64cef74a79184c60a0d10884d0963249',0,0,1795566610894);
INSERT INTO twins VALUES('east->west','twinshore.heartbeats',0,'cea78dc8538d4126914593d3b2309561','63f388fc7dd348f2a85ed2554722da50',0,0,1795566612507);
CREATE TABLE positions (
	id INTEGER NOT NULL, 
	link VARCHAR(130) NOT NULL, 
	topic VARCHAR(249) NOT NULL, 
	partition INTEGER NOT NULL, 
	start_offset BIGINT NOT NULL, 
	to_offset BIGINT NOT NULL, 
	records BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	batches BIGINT NOT NULL, 
	source_end BIGINT NOT NULL, 
	lag_records BIGINT NOT NULL, 
	state VARCHAR(32) NOT NULL, 
	first_ms BIGINT NOT NULL, 
	last_ms BIGINT NOT NULL, 
	open_from BIGINT NOT NULL, 
	open_records BIGINT NOT NULL, 
	open_bytes BIGINT NOT NULL, 
	open_batches BIGINT NOT NULL, 
	open_first_ms BIGINT NOT NULL, 
	open_last_ms BIGINT NOT NULL, 
	closed_rows INTEGER NOT NULL, 
	producers INTEGER NOT NULL, 
	CONSTRAINT pk_positions PRIMARY KEY (id), 
	CONSTRAINT uq_positions_link UNIQUE (link, topic, partition)
);
INSERT INTO positions VALUES(1,'east->west','orders',1,0,150,150,1592,1,150,0,'flowing',1795566663667,0,0,150,1592,1,1795566663667,1795566663667,0,0);
INSERT INTO positions VALUES(2,'east->west','twinshore.heartbeats',0,0,85,85,13175,85,85,0,'flowing',1795566663667,1795566696891,0,85,13175,85,1795566663667,1795566696891,0,0);
INSERT INTO positions VALUES(3,'east->west','orders',0,0,150,150,1592,1,150,0,'flowing',1795566668715,0,0,150,1592,1,1795566668715,1795566668715,0,0);
CREATE TABLE receipts (
	position_id BIGINT NOT NULL, 
	from_offset BIGINT NOT NULL, 
	to_offset BIGINT NOT NULL, 
	records BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	batches BIGINT NOT NULL, 
	source_end BIGINT NOT NULL, 
	lag_records BIGINT NOT NULL, 
	first_ms BIGINT NOT NULL, 
	last_ms BIGINT NOT NULL, 
	CONSTRAINT pk_receipts PRIMARY KEY (position_id, from_offset), 
	CONSTRAINT fk_receipts_position_id FOREIGN KEY(position_id) REFERENCES positions (id) ON DELETE CASCADE
);
CREATE TABLE source_producers (
	position_id BIGINT NOT NULL, 
	producer_id BIGINT NOT NULL, 
	epoch INTEGER NOT NULL, 
	last_offset BIGINT NOT NULL, 
	last_ms BIGINT NOT NULL, 
	batches TEXT NOT NULL, 
	CONSTRAINT pk_source_producers PRIMARY KEY (position_id, producer_id), 
	CONSTRAINT fk_source_producers_position_id FOREIGN KEY(position_id) REFERENCES positions (id) ON DELETE CASCADE
);
CREATE TABLE incidents (
	id INTEGER NOT NULL, 
	open_key VARCHAR(64), 
	link VARCHAR(130) NOT NULL, 
	topic VARCHAR(249) NOT NULL, 
	partition INTEGER NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	from_offset BIGINT NOT NULL, 
	to_offset BIGINT NOT NULL, 
	policy VARCHAR(64) NOT NULL, 
	sentence TEXT NOT NULL, 
	opened_ms BIGINT NOT NULL, 
	closed_ms BIGINT, 
	CONSTRAINT pk_incidents PRIMARY KEY (id), 
	CONSTRAINT uq_incidents_open_key UNIQUE (open_key)
);
INSERT INTO incidents VALUES(1,'125829b8d91f0c0ea3b009ab98b25cfc90d922148918a50e7d46c8b180abb8e9','east->west','few',-1,'partition removed',-1,-1,'stop the topic','topic few has 1 partitions on the target, 2 on the source. give it 2 partitions, or delete it on the target so that its twin can be made',1795566610757,NULL);
CREATE TABLE link_status (
	link VARCHAR(130) NOT NULL, 
	owner VARCHAR(255) NOT NULL, 
	state VARCHAR(64) NOT NULL, 
	sentence TEXT NOT NULL, 
	updated_ms BIGINT NOT NULL, 
	lanes INTEGER NOT NULL, 
	partitions INTEGER NOT NULL, 
	records_per_s DOUBLE NOT NULL, 
	bytes_per_s DOUBLE NOT NULL, 
	lag_records BIGINT NOT NULL, 
	p50_ms DOUBLE, 
	p99_ms DOUBLE, 
	CONSTRAINT pk_link_status PRIMARY KEY (link)
);
INSERT INTO link_status VALUES('east->west','host1 process 5602 8e512038','flowing','3 partitions on 2 lanes, 1 topics refused',1795566697352,2,3,1.1416336505454800498,166.83098334704212107,0,NULL,NULL);
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	at_ms BIGINT NOT NULL, 
	link VARCHAR(130) NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	subject TEXT NOT NULL, 
	"before" TEXT NOT NULL, 
	"after" TEXT NOT NULL, 
	outcome TEXT NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (id)
);
INSERT INTO audit VALUES(1,1795566628639,'east->west','control','paused_topics','[]','["payments"]','by anna');
INSERT INTO audit VALUES(2,1795566635592,'east->west','control','throttle_bytes_s','0','5000000','by anna');
CREATE TABLE followed (
	link VARCHAR(130) NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	item VARCHAR(64) NOT NULL, 
	state VARCHAR(32) NOT NULL, 
	subject TEXT NOT NULL, 
	value TEXT NOT NULL, 
	since_ms BIGINT NOT NULL, 
	CONSTRAINT pk_followed PRIMARY KEY (link, kind, item)
);
INSERT INTO followed VALUES('east->west','groups','e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855','groups','','{"at_ms": 1795566696441, "groups": 1, "took_ms": 21.2, "requests": {"Metadata": 2, "ListGroups": 2, "OffsetFetch": 1}, "states": {"same": 1}, "behind": 0, "differ": {}}',1795566696441);
INSERT INTO followed VALUES('east->west','groups compared','e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855','groups compared','','c$|w?O3KX1$;?YviUj}{83Wz',1795566617485);
INSERT INTO followed VALUES('east->west','topic setting','1c168adb00d208e42f93314529f1fa9c0427eb63233ceda95a5db52b7012a719','source','orders','{}',1795566614468);
INSERT INTO followed VALUES('east->west','topic setting','df384ae97c77ad3001626aab01f2eb2aad176448109165df1d64c57b7091cd1c','source','payments','{}',1795566614469);
INSERT INTO followed VALUES('east->west','topic setting','2c6366894933ddcd856a2cb86fe3e2584804b050949fb892601c0366c88bdc68','source','twinshore.heartbeats','{"cleanup.policy":"delete","retention.ms":"604800000","segment.bytes":"16777216"}',1795566614469);
CREATE TABLE controls (
	link VARCHAR(130) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	value TEXT NOT NULL, 
	changed_ms BIGINT NOT NULL, 
	changed_by VARCHAR(255) NOT NULL, 
	CONSTRAINT pk_controls PRIMARY KEY (link, name)
);
INSERT INTO controls VALUES('east->west','paused_topics','["payments"]',1795566628591,'anna');
INSERT INTO controls VALUES('east->west','throttle_bytes_s','5000000',1795566635549,'anna');
CREATE TABLE control_versions (
	link VARCHAR(130) NOT NULL, 
	version BIGINT NOT NULL, 
	CONSTRAINT pk_control_versions PRIMARY KEY (link)
);
INSERT INTO control_versions VALUES('east->west',2);
CREATE TABLE extents (
	link VARCHAR(130) NOT NULL, 
	topic VARCHAR(249) NOT NULL, 
	partition INTEGER NOT NULL, 
	source BIGINT NOT NULL, 
	target BIGINT NOT NULL, 
	length BIGINT NOT NULL, 
	sequence BIGINT NOT NULL, 
	CONSTRAINT pk_extents PRIMARY KEY (link, topic, partition, source)
);
CREATE TABLE alarms (
	id INTEGER NOT NULL, 
	open_key VARCHAR(64), 
	link VARCHAR(130) NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	topic VARCHAR(249) NOT NULL, 
	group_id VARCHAR(255) NOT NULL, 
	sentence TEXT NOT NULL, 
	raised_ms BIGINT NOT NULL, 
	told_ms BIGINT, 
	times_told BIGINT NOT NULL, 
	cleared_ms BIGINT, 
	CONSTRAINT pk_alarms PRIMARY KEY (id), 
	CONSTRAINT uq_alarms_open_key UNIQUE (open_key)
);
CREATE TABLE delay_places (
	link VARCHAR(130) NOT NULL, 
	topic VARCHAR(249) NOT NULL, 
	partition INTEGER NOT NULL, 
	group_id VARCHAR(255) NOT NULL, 
	at_ms BIGINT NOT NULL, 
	source_end BIGINT NOT NULL, 
	target_end BIGINT NOT NULL, 
	lag_records BIGINT NOT NULL, 
	recovery_point_ms BIGINT NOT NULL, 
	axis VARCHAR(32) NOT NULL, 
	state VARCHAR(32) NOT NULL, 
	waiting TEXT NOT NULL, 
	CONSTRAINT pk_delay_places PRIMARY KEY (link, topic, partition, group_id)
);
CREATE TABLE delay_watches (
	name VARCHAR(255) NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	owner VARCHAR(255) NOT NULL, 
	beat BIGINT NOT NULL, 
	every_ms BIGINT NOT NULL, 
	beaten_ms BIGINT NOT NULL, 
	sampled_ms BIGINT NOT NULL, 
	sentence TEXT NOT NULL, 
	CONSTRAINT pk_delay_watches PRIMARY KEY (name)
);
CREATE TABLE proofs (
	link VARCHAR(130) NOT NULL, 
	topic VARCHAR(249) NOT NULL, 
	partition INTEGER NOT NULL, 
	way VARCHAR(32) NOT NULL, 
	state VARCHAR(32) NOT NULL, 
	from_offset BIGINT NOT NULL, 
	to_offset BIGINT NOT NULL, 
	target_offset BIGINT NOT NULL, 
	source_end BIGINT NOT NULL, 
	records BIGINT NOT NULL, 
	digest VARCHAR(32) NOT NULL, 
	sentence TEXT NOT NULL, 
	source_topic_id VARCHAR(64) NOT NULL, 
	target_topic_id VARCHAR(64) NOT NULL, 
	proven_ms BIGINT NOT NULL, 
	CONSTRAINT pk_proofs PRIMARY KEY (link, topic, partition)
);
INSERT INTO proofs VALUES('east->west','orders',1,'exact','identical',0,150,-1,150,150,'8f5112a30bfd2d8ae199f77e7b214ba2','','610982ccebcf46e5b70a2644e656afe3','0ac389ed89104bc79a97a3ccea5ccc5c',1795566692615);
INSERT INTO proofs VALUES('east->west','twinshore.heartbeats',0,'exact','identical',0,54,-1,54,54,'76f794bfebb44712357ded834faff4ab','','cea78dc8538d4126914593d3b2309561','63f388fc7dd348f2a85ed2554722da50',1795566692615);
CREATE INDEX ix_source_producers_recent ON source_producers (position_id, last_offset);
CREATE INDEX ix_incidents_link ON incidents (link);
CREATE INDEX ix_audit_link ON audit (link);
CREATE INDEX ix_extents_target ON extents (link, topic, partition, target);
CREATE INDEX ix_alarms_link ON alarms (link);
COMMIT;
