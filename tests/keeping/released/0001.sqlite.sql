BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE alert (
	id INTEGER NOT NULL, 
	series_id BIGINT NOT NULL, 
	commit_id BIGINT NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	ratio DOUBLE NOT NULL, 
	low DOUBLE NOT NULL, 
	high DOUBLE NOT NULL, 
	evidence JSON NOT NULL, 
	state VARCHAR(32) NOT NULL, 
	assignee TEXT NOT NULL, 
	note TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	updated_at DATETIME NOT NULL, 
	CONSTRAINT pk_alert PRIMARY KEY (id), 
	CONSTRAINT ck_alert_ratio CHECK (ratio > 0 AND low <= high), 
	CONSTRAINT fk_alert_commit_id_commit FOREIGN KEY(commit_id) REFERENCES "commit" (id), 
	CONSTRAINT fk_alert_series_id_series FOREIGN KEY(series_id) REFERENCES series (id), 
	CONSTRAINT uq_alert_series_id_commit_id UNIQUE (series_id, commit_id), 
	CONSTRAINT ck_alert_kind CHECK (kind IN ('regression', 'improvement')), 
	CONSTRAINT ck_alert_state CHECK (state IN ('new', 'confirmed', 'investigating', 'accepted', 'fixed', 'backed_out', 'invalid', 'infrastructure'))
);
INSERT INTO "alert" VALUES(1,1,3,'regression',1.03,1.01,1.05,'{"method": "changepoint/1", "found": true}','accepted','someone','traded for 10 %','2026-12-01 02:00:00.000000','2026-12-01 02:00:00.000000');
INSERT INTO "alert" VALUES(2,1,5,'improvement',1.03,1.01,1.05,'{"method": "changepoint/1", "found": true}','new','','','2026-12-01 02:00:00.000000','2026-12-01 02:00:00.000000');
CREATE TABLE "commit" (
	id INTEGER NOT NULL, 
	suite_id BIGINT NOT NULL, 
	sha TEXT NOT NULL, 
	parents JSON NOT NULL, 
	position BIGINT, 
	on_branch BOOLEAN NOT NULL, 
	committed_at DATETIME, 
	subject TEXT NOT NULL, 
	CONSTRAINT pk_commit PRIMARY KEY (id), 
	CONSTRAINT ck_commit_on_branch CHECK (NOT on_branch OR position IS NOT NULL), 
	CONSTRAINT ck_commit_position CHECK (position > 0), 
	CONSTRAINT fk_commit_suite_id_suite FOREIGN KEY(suite_id) REFERENCES suite (id), 
	CONSTRAINT uq_commit_suite_id_sha UNIQUE (suite_id, sha)
);
INSERT INTO "commit" VALUES(1,1,'356a192b7913b04c54574d18c28d46e6395428ab','[]',1,0,'2026-12-01 03:00:00.000000','Change 1: ''quoted'', \ and größer ≤ 3 µs');
INSERT INTO "commit" VALUES(2,1,'da4b9237bacccdf19c0760cab7aec4a8359010b0','["356a192b7913b04c54574d18c28d46e6395428ab"]',2,1,'2026-12-01 04:00:00.000000','Change number 2');
INSERT INTO "commit" VALUES(3,1,'77de68daecd823babbb58edb1c8e14d7106e83bb','["da4b9237bacccdf19c0760cab7aec4a8359010b0"]',3,1,'2026-12-01 05:00:00.000000','Change number 3');
INSERT INTO "commit" VALUES(4,1,'1b6453892473a467d07372d45eb05abc2031647a','["77de68daecd823babbb58edb1c8e14d7106e83bb"]',4,1,'2026-12-01 06:00:00.000000','Change number 4');
INSERT INTO "commit" VALUES(5,1,'ac3478d69a3c81fa62e60f5c3696165a4e5e6ac4','["1b6453892473a467d07372d45eb05abc2031647a"]',5,1,'2026-12-01 07:00:00.000000','Change number 5');
INSERT INTO "commit" VALUES(6,1,'c1dfd96eea8cc2b62785275bca38ac261256e278','["ac3478d69a3c81fa62e60f5c3696165a4e5e6ac4"]',6,1,'2026-12-01 08:00:00.000000','Change number 6');
INSERT INTO "commit" VALUES(7,1,'902ba3cda1883801594b6e1b452790cc53948fda','["c1dfd96eea8cc2b62785275bca38ac261256e278"]',7,1,'2026-12-01 09:00:00.000000','Change number 7');
INSERT INTO "commit" VALUES(8,1,'fe5dbbcea5ce7e2988b8c69bcfdfde8904aabc1f','["902ba3cda1883801594b6e1b452790cc53948fda"]',8,1,'2026-12-01 10:00:00.000000','Change number 8');
INSERT INTO "commit" VALUES(9,1,'0ade7c2cf97f75d009975f4d720d1fa6c19f4897','["fe5dbbcea5ce7e2988b8c69bcfdfde8904aabc1f"]',9,1,'2026-12-01 11:00:00.000000','Change number 9');
INSERT INTO "commit" VALUES(10,1,'8baf1a8505b71286dc5ae8e3d10fc8de1aa368ca','[]',NULL,0,'2026-12-01 02:00:00.000000','Change number 0');
INSERT INTO "commit" VALUES(11,2,'356a192b7913b04c54574d18c28d46e6395428ab','[]',1,0,'2026-12-01 03:00:00.000000','Change number 1');
INSERT INTO "commit" VALUES(12,1,'17ba0791499db908433b80f37c5fbc89b870084b','["b1d5781111d84f7b3fe45a0852e59758cd7a87e5"]',11,1,'2026-12-01 13:00:00.000000','Change number 11');
INSERT INTO "commit" VALUES(13,1,'b1d5781111d84f7b3fe45a0852e59758cd7a87e5','["0ade7c2cf97f75d009975f4d720d1fa6c19f4897"]',10,1,'2026-12-01 12:00:00.000000','Change number 10');
CREATE TABLE control (
	run_id BIGINT NOT NULL, 
	number INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	value DOUBLE NOT NULL, 
	working_set_bytes BIGINT, 
	CONSTRAINT pk_control PRIMARY KEY (run_id, number), 
	CONSTRAINT fk_control_run_id_run FOREIGN KEY(run_id) REFERENCES run (id)
);
INSERT INTO "control" VALUES(1,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(1,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(1,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(2,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(2,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(2,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(3,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(3,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(3,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(4,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(4,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(4,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(5,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(5,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(5,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(6,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(6,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(6,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(7,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(7,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(7,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(8,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(8,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(8,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(9,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(9,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(9,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(10,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(10,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(10,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(11,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(11,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(11,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(12,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(12,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(12,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(13,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(13,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(13,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(14,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(14,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(14,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(15,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(15,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(15,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(16,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(16,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(16,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(17,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(17,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(17,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(18,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(18,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(18,2,'matmul_rate','flop/s',100000000000.0,NULL);
INSERT INTO "control" VALUES(19,0,'read_bandwidth_cache','B/s',40000000000.0,1048576);
INSERT INTO "control" VALUES(19,1,'read_bandwidth_memory','B/s',10000000000.0,268435456);
INSERT INTO "control" VALUES(19,2,'matmul_rate','flop/s',100000000000.0,NULL);
CREATE TABLE environment (
	id INTEGER NOT NULL, 
	fingerprint TEXT NOT NULL, 
	driver TEXT NOT NULL, 
	cuda TEXT NOT NULL, 
	torch TEXT NOT NULL, 
	triton TEXT NOT NULL, 
	python TEXT NOT NULL, 
	os_kernel TEXT NOT NULL, 
	image TEXT NOT NULL, 
	device TEXT NOT NULL, 
	CONSTRAINT pk_environment PRIMARY KEY (id), 
	CONSTRAINT uq_environment_fingerprint UNIQUE (fingerprint)
);
INSERT INTO "environment" VALUES(1,'a1f1975c1798248a','','','2.13.0','3.7.1','3.11.7','6.1.0','','');
INSERT INTO "environment" VALUES(2,'03d3f37e340b65ab','590.44','','2.13.0','3.7.1','3.11.7','6.1.0','','');
INSERT INTO "environment" VALUES(3,'4039700243e17d78','','','','','','','','');
CREATE TABLE hardware (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	model TEXT NOT NULL, 
	count INTEGER NOT NULL, 
	memory_bytes BIGINT, 
	power_cap_w DOUBLE, 
	partition TEXT NOT NULL, 
	CONSTRAINT pk_hardware PRIMARY KEY (id), 
	CONSTRAINT ck_hardware_count CHECK (count > 0), 
	CONSTRAINT uq_hardware_name UNIQUE (name)
);
INSERT INTO "hardware" VALUES(1,'cpu-test-2c','Test CPU',1,17179869184,NULL,'');
INSERT INTO "hardware" VALUES(2,'h200','NVIDIA H200',1,151397597184,700.0,'');
CREATE TABLE measurement (
	series_id BIGINT NOT NULL, 
	run_id BIGINT NOT NULL, 
	status VARCHAR(32) NOT NULL, 
	verified BOOLEAN NOT NULL, 
	n INTEGER NOT NULL, 
	median DOUBLE, 
	mad DOUBLE, 
	p10 DOUBLE, 
	p90 DOUBLE, 
	clock VARCHAR(32), 
	iterations BIGINT, 
	resolution DOUBLE NOT NULL, 
	tokens BIGINT NOT NULL, 
	bytes_moved BIGINT NOT NULL, 
	flops BIGINT NOT NULL, 
	working_set_bytes BIGINT NOT NULL, 
	error DOUBLE, 
	tolerance DOUBLE, 
	reason TEXT NOT NULL, 
	extras JSON NOT NULL, 
	samples BLOB, 
	CONSTRAINT pk_measurement PRIMARY KEY (series_id, run_id), 
	CONSTRAINT ck_measurement_ok_if_timed CHECK ((status = 'ok') = (median IS NOT NULL)), 
	CONSTRAINT ck_measurement_timing_whole CHECK ((median IS NULL) = (mad IS NULL) AND (median IS NULL) = (p10 IS NULL) AND (median IS NULL) = (p90 IS NULL) AND (median IS NULL) = (n = 0) AND (median IS NULL) = (clock IS NULL) AND (median IS NULL) = (iterations IS NULL) AND (median IS NOT NULL OR samples IS NULL)), 
	CONSTRAINT ck_measurement_median CHECK (median > 0), 
	CONSTRAINT ck_measurement_workload_sizes CHECK (tokens >= 0 AND bytes_moved >= 0 AND flops >= 0 AND working_set_bytes >= 0), 
	CONSTRAINT fk_measurement_run_id_run FOREIGN KEY(run_id) REFERENCES run (id), 
	CONSTRAINT fk_measurement_series_id_series FOREIGN KEY(series_id) REFERENCES series (id), 
	CONSTRAINT ck_measurement_status CHECK (status IN ('ok', 'checked', 'incorrect', 'error', 'timeout', 'build_failed', 'unsupported', 'missing')), 
	CONSTRAINT ck_measurement_clock CHECK (clock IN ('cuda_event', 'perf_counter', 'foreign'))
);
INSERT INTO "measurement" VALUES(1,1,'ok',1,5,1.0199999999999998998e-02,0.0,1.0199999999999998998e-02,1.0199999999999998998e-02,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',NULL);
INSERT INTO "measurement" VALUES(2,1,'checked',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0.0,1,10000000,1000000,536870912,NULL,NULL,'it is checked in this test','{}',NULL);
INSERT INTO "measurement" VALUES(3,2,'ok',1,5,1.0199999999999998998e-02,0.0,1.0199999999999998998e-02,1.0199999999999998998e-02,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'87855AD3BCE3843F87855AD3BCE3843F87855AD3BCE3843F87855AD3BCE3843F87855AD3BCE3843F');
INSERT INTO "measurement" VALUES(4,2,'checked',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0.0,1,10000000,1000000,536870912,NULL,NULL,'it is checked in this test','{}',NULL);
INSERT INTO "measurement" VALUES(1,3,'ok',1,5,0.0103,0.0,0.0103,0.0103,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'0EBE30992A18853F0EBE30992A18853F0EBE30992A18853F0EBE30992A18853F0EBE30992A18853F');
INSERT INTO "measurement" VALUES(2,3,'ok',1,5,0.0101,9.99999999999994e-05,0.01,0.01026,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'014D840D4FAF843F7B14AE47E17A843F88855AD3BCE3843F7B14AE47E17A843F0EBE30992A18853F');
INSERT INTO "measurement" VALUES(3,4,'ok',1,5,0.0103,0.0,0.0103,0.0103,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'0EBE30992A18853F0EBE30992A18853F0EBE30992A18853F0EBE30992A18853F0EBE30992A18853F');
INSERT INTO "measurement" VALUES(4,4,'ok',1,5,0.0101,9.99999999999994e-05,0.01,0.01026,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'014D840D4FAF843F7B14AE47E17A843F88855AD3BCE3843F7B14AE47E17A843F0EBE30992A18853F');
INSERT INTO "measurement" VALUES(1,5,'ok',1,5,0.0104,0.0,0.0104,0.0104,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'94F6065F984C853F94F6065F984C853F94F6065F984C853F94F6065F984C853F94F6065F984C853F');
INSERT INTO "measurement" VALUES(2,5,'error',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0.0,1,10000000,1000000,536870912,NULL,NULL,'it is error in this test','{}',NULL);
INSERT INTO "measurement" VALUES(3,6,'ok',1,5,0.0104,0.0,0.0104,0.0104,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'94F6065F984C853F94F6065F984C853F94F6065F984C853F94F6065F984C853F94F6065F984C853F');
INSERT INTO "measurement" VALUES(4,6,'error',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0.0,1,10000000,1000000,536870912,NULL,NULL,'it is error in this test','{}',NULL);
INSERT INTO "measurement" VALUES(1,7,'ok',1,5,1.04999999999999989175e-02,0.0,1.04999999999999989175e-02,1.04999999999999989175e-02,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'1A2FDD240681853F1A2FDD240681853F1A2FDD240681853F1A2FDD240681853F1A2FDD240681853F');
INSERT INTO "measurement" VALUES(2,7,'ok',1,5,0.0101,9.99999999999994e-05,0.01,0.01026,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'014D840D4FAF843F7B14AE47E17A843F88855AD3BCE3843F7B14AE47E17A843F0EBE30992A18853F');
INSERT INTO "measurement" VALUES(3,8,'ok',1,5,1.04999999999999989175e-02,0.0,1.04999999999999989175e-02,1.04999999999999989175e-02,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'1A2FDD240681853F1A2FDD240681853F1A2FDD240681853F1A2FDD240681853F1A2FDD240681853F');
INSERT INTO "measurement" VALUES(4,8,'ok',1,5,0.0101,9.99999999999994e-05,0.01,0.01026,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'014D840D4FAF843F7B14AE47E17A843F88855AD3BCE3843F7B14AE47E17A843F0EBE30992A18853F');
INSERT INTO "measurement" VALUES(1,9,'ok',1,5,0.0106,0.0,0.0106,0.0106,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'A167B3EA73B5853FA167B3EA73B5853FA167B3EA73B5853FA167B3EA73B5853FA167B3EA73B5853F');
INSERT INTO "measurement" VALUES(2,9,'build_failed',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0.0,1,10000000,1000000,536870912,NULL,NULL,'it is build_failed in this test','{}',NULL);
INSERT INTO "measurement" VALUES(3,10,'ok',1,5,0.0106,0.0,0.0106,0.0106,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'A167B3EA73B5853FA167B3EA73B5853FA167B3EA73B5853FA167B3EA73B5853FA167B3EA73B5853F');
INSERT INTO "measurement" VALUES(4,10,'build_failed',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0.0,1,10000000,1000000,536870912,NULL,NULL,'it is build_failed in this test','{}',NULL);
INSERT INTO "measurement" VALUES(1,11,'ok',1,5,0.0107,0.0,0.0107,0.0107,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'27A089B0E1E9853F27A089B0E1E9853F27A089B0E1E9853F27A089B0E1E9853F27A089B0E1E9853F');
INSERT INTO "measurement" VALUES(2,11,'ok',1,5,0.0101,9.99999999999994e-05,0.01,0.01026,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'014D840D4FAF843F7B14AE47E17A843F88855AD3BCE3843F7B14AE47E17A843F0EBE30992A18853F');
INSERT INTO "measurement" VALUES(3,12,'ok',1,5,0.0107,0.0,0.0107,0.0107,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'27A089B0E1E9853F27A089B0E1E9853F27A089B0E1E9853F27A089B0E1E9853F27A089B0E1E9853F');
INSERT INTO "measurement" VALUES(4,12,'ok',1,5,0.0101,9.99999999999994e-05,0.01,0.01026,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'014D840D4FAF843F7B14AE47E17A843F88855AD3BCE3843F7B14AE47E17A843F0EBE30992A18853F');
INSERT INTO "measurement" VALUES(1,13,'ok',1,5,1.0799999999999998837e-02,0.0,1.0799999999999998837e-02,1.0799999999999998837e-02,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'ADD85F764F1E863FADD85F764F1E863FADD85F764F1E863FADD85F764F1E863FADD85F764F1E863F');
INSERT INTO "measurement" VALUES(2,13,'missing',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0.0,1,10000000,1000000,536870912,NULL,NULL,'it is missing in this test','{}',NULL);
INSERT INTO "measurement" VALUES(3,14,'ok',1,5,1.0799999999999998837e-02,0.0,1.0799999999999998837e-02,1.0799999999999998837e-02,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'ADD85F764F1E863FADD85F764F1E863FADD85F764F1E863FADD85F764F1E863FADD85F764F1E863F');
INSERT INTO "measurement" VALUES(4,14,'missing',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0.0,1,10000000,1000000,536870912,NULL,NULL,'it is missing in this test','{}',NULL);
INSERT INTO "measurement" VALUES(1,15,'ok',1,5,0.0109,0.0,0.0109,0.0109,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'3411363CBD52863F3411363CBD52863F3411363CBD52863F3411363CBD52863F3411363CBD52863F');
INSERT INTO "measurement" VALUES(2,15,'ok',1,5,0.0101,9.99999999999994e-05,0.01,0.01026,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'014D840D4FAF843F7B14AE47E17A843F88855AD3BCE3843F7B14AE47E17A843F0EBE30992A18853F');
INSERT INTO "measurement" VALUES(3,16,'ok',1,5,0.0109,0.0,0.0109,0.0109,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'3411363CBD52863F3411363CBD52863F3411363CBD52863F3411363CBD52863F3411363CBD52863F');
INSERT INTO "measurement" VALUES(4,16,'ok',1,5,0.0101,9.99999999999994e-05,0.01,0.01026,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'014D840D4FAF843F7B14AE47E17A843F88855AD3BCE3843F7B14AE47E17A843F0EBE30992A18853F');
INSERT INTO "measurement" VALUES(1,18,'ok',1,5,0.0101,9.99999999999994e-05,0.01,0.01026,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'014D840D4FAF843F7B14AE47E17A843F88855AD3BCE3843F7B14AE47E17A843F0EBE30992A18853F');
INSERT INTO "measurement" VALUES(5,19,'ok',1,5,0.0101,9.99999999999994e-05,0.01,0.01026,'perf_counter',1,1.0e-07,1,10000000,1000000,536870912,NULL,NULL,'','{}',X'014D840D4FAF843F7B14AE47E17A843F88855AD3BCE3843F7B14AE47E17A843F0EBE30992A18853F');
CREATE TABLE node (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	device_uuid TEXT NOT NULL, 
	CONSTRAINT pk_node PRIMARY KEY (id), 
	CONSTRAINT uq_node_name_device_uuid UNIQUE (name, device_uuid)
);
INSERT INTO "node" VALUES(1,'node-a','');
INSERT INTO "node" VALUES(2,'node-b','GPU-0001');
CREATE TABLE run (
	id INTEGER NOT NULL, 
	artifact_sha256 TEXT NOT NULL, 
	path TEXT NOT NULL, 
	suite_id BIGINT NOT NULL, 
	commit_id BIGINT NOT NULL, 
	hardware_id BIGINT NOT NULL, 
	node_id BIGINT NOT NULL, 
	environment_id BIGINT NOT NULL, 
	session_id BIGINT NOT NULL, 
	"index" INTEGER NOT NULL, 
	origin VARCHAR(32) NOT NULL, 
	status VARCHAR(32) NOT NULL, 
	harness TEXT NOT NULL, 
	started_at DATETIME NOT NULL, 
	finished_at DATETIME NOT NULL, 
	reason TEXT NOT NULL, 
	log_tail TEXT NOT NULL, 
	telemetry JSON NOT NULL, 
	CONSTRAINT pk_run PRIMARY KEY (id), 
	CONSTRAINT ck_run_index CHECK ("index" >= 0), 
	CONSTRAINT ck_run_finished_at CHECK (finished_at >= started_at), 
	CONSTRAINT ck_run_artifact_sha256 CHECK (length(artifact_sha256) = 64), 
	CONSTRAINT fk_run_commit_id_commit FOREIGN KEY(commit_id) REFERENCES "commit" (id), 
	CONSTRAINT fk_run_environment_id_environment FOREIGN KEY(environment_id) REFERENCES environment (id), 
	CONSTRAINT fk_run_hardware_id_hardware FOREIGN KEY(hardware_id) REFERENCES hardware (id), 
	CONSTRAINT fk_run_node_id_node FOREIGN KEY(node_id) REFERENCES node (id), 
	CONSTRAINT fk_run_session_id_session FOREIGN KEY(session_id) REFERENCES session (id), 
	CONSTRAINT fk_run_suite_id_suite FOREIGN KEY(suite_id) REFERENCES suite (id), 
	CONSTRAINT uq_run_artifact_sha256 UNIQUE (artifact_sha256), 
	CONSTRAINT ck_run_origin CHECK (origin IN ('measured', 'recorded', 'synthetic')), 
	CONSTRAINT ck_run_status CHECK (status IN ('ok', 'error', 'timeout', 'build_failed'))
);
INSERT INTO "run" VALUES(1,'fcda89b7ae298e6fdc5e0b07f2d53f52ba87a8ad7e1ed43209b476f11797f612','artifacts/0',1,1,1,1,1,1,0,'measured','ok','perfci/0.1.0 test','2026-12-02 02:00:00.000001','2026-12-02 02:00:30.000001','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(2,'0510d29633e674903ae42df7d3fdfea501adebb1d79f78189ab5b98c156e9495','artifacts/1',1,1,2,2,1,1,1,'measured','ok','perfci/0.1.0 test','2026-12-02 02:01:00.000001','2026-12-02 02:01:30.000001','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(3,'2f9ef7e6277b0066ccb55e6065c0c0842fa7ceb0eac6b6f6fc653cd235f4fda7','artifacts/2',1,2,1,1,1,2,0,'measured','ok','perfci/0.1.0 test','2026-12-03 02:00:00.000002','2026-12-03 02:00:30.000002','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(4,'2b00a3a969e779e8b88a3a3195919fc4e58fc8d285220c1280d1fe9cb379bfdb','artifacts/3',1,2,2,2,1,2,1,'recorded','ok','perfci/0.1.0 test','2026-12-03 02:01:00.000002','2026-12-03 02:01:30.000002','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(5,'4e25212db2ceb227f4f0a9ad6a0e08f3c7d694c7ae4ba2edb723891d6d5c50f0','artifacts/4',1,3,1,1,1,3,0,'measured','ok','perfci/0.1.0 test','2026-12-04 02:00:00.000003','2026-12-04 02:00:30.000003','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(6,'af366341809e2dcc5f908bb546484081d78ea57bea19d6aa10382064eff0fdd5','artifacts/5',1,3,2,2,1,3,1,'measured','ok','perfci/0.1.0 test','2026-12-04 02:01:00.000003','2026-12-04 02:01:30.000003','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(7,'09185ca11d6819041ceafa176532e185eb6ddb74202c5a586018e7d9b61ac96c','artifacts/6',1,4,1,1,1,4,0,'measured','ok','perfci/0.1.0 test','2026-12-05 02:00:00.000004','2026-12-05 02:00:30.000004','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(8,'1abe8077f7491abaebccfaeef4f09a5fb0713a0c82c600b3e5cbe25e0ef39b1a','artifacts/7',1,4,2,2,1,4,1,'measured','ok','perfci/0.1.0 test','2026-12-05 02:01:00.000004','2026-12-05 02:01:30.000004','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(9,'074cceb165684c088a32edc32f65bd9e1ca7e57c8f30cfb68c536b86f952bff6','artifacts/8',1,5,1,1,2,5,0,'measured','ok','perfci/0.1.0 test','2026-12-06 02:00:00.000005','2026-12-06 02:00:30.000005','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(10,'fe28c84f8acb56d9ed9b214592a910d362ed88ea09ee8e9460a578fa7adaeb41','artifacts/9',1,5,2,2,2,5,1,'measured','ok','perfci/0.1.0 test','2026-12-06 02:01:00.000005','2026-12-06 02:01:30.000005','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(11,'81c613ad1fb813bc1b20ccf6a65d26e49d84e00152502783384be5b7649b9e5c','artifacts/10',1,6,1,1,2,6,0,'measured','ok','perfci/0.1.0 test','2026-12-07 02:00:00.000006','2026-12-07 02:00:30.000006','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(12,'c0e7e1a65cce6f16aa16c7c6af7dd995079352737ebda986caeec79beb55ebcb','artifacts/11',1,6,2,2,2,6,1,'measured','ok','perfci/0.1.0 test','2026-12-07 02:01:00.000006','2026-12-07 02:01:30.000006','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(13,'d0f341eedcdccf6ee4d7afb29de4ed08bfe04ad4e3d4b48042bd5f1845d396da','artifacts/12',1,7,1,1,2,7,0,'measured','ok','perfci/0.1.0 test','2026-12-08 02:00:00.000007','2026-12-08 02:00:30.000007','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(14,'537b4849186990cb3467f83a705ad0f3398bcf180328489251a1886b117b0562','artifacts/13',1,7,2,2,2,7,1,'measured','ok','perfci/0.1.0 test','2026-12-08 02:01:00.000007','2026-12-08 02:01:30.000007','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(15,'9b49b76fd89119e45b1a917bb9c467f26f51f68ce8e0ad6e0c54925990a99d10','artifacts/14',1,8,1,1,2,8,0,'measured','ok','perfci/0.1.0 test','2026-12-09 02:00:00.000008','2026-12-09 02:00:30.000008','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(16,'70815d76e86d52a99651aef6ff395eecf07764bdb6aa66f7dcfd2b4baf6d8c44','artifacts/15',1,8,2,2,2,8,1,'measured','ok','perfci/0.1.0 test','2026-12-09 02:01:00.000008','2026-12-09 02:01:30.000008','','','{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO "run" VALUES(17,'ae9891dfaef821178d65be8dfb3329c615306eff7f1c958accc2ac439453b293','artifacts/other-0',1,9,1,1,1,1,0,'measured','build_failed','perfci/0.1.0 test','2026-12-01 02:00:00.000000','2026-12-01 02:00:30.000000','exit code 1','a
b
','{"sm_clock_hz": null, "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": [], "others": [], "load_average": 0.5}');
INSERT INTO "run" VALUES(18,'fc0b3f025950994210929e03e738edbd425bdef3cb529f82cbc86fb18288b82d','artifacts/other-1',1,10,1,1,3,9,1,'measured','ok','perfci/0.1.0 test','2026-12-01 02:01:00.000000','2026-12-01 02:01:30.000000','','','{"sm_clock_hz": null, "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": [], "others": [], "load_average": 0.5}');
INSERT INTO "run" VALUES(19,'4d0ee83a799c78d6fc1ff55a99260bb84e7ef05f8bd69b93d16a35b7a0e80210','artifacts/other-2',2,11,2,1,1,10,0,'synthetic','ok','perfci/0.1.0 test','2026-12-01 02:00:00.000000','2026-12-01 02:00:30.000000','','','{"sm_clock_hz": null, "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": [], "others": [], "load_average": 0.5}');
CREATE TABLE series (
	id INTEGER NOT NULL, 
	suite_id BIGINT NOT NULL, 
	hardware_id BIGINT NOT NULL, 
	workload TEXT NOT NULL, 
	implementation TEXT NOT NULL, 
	metric TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	direction VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_series PRIMARY KEY (id), 
	CONSTRAINT fk_series_hardware_id_hardware FOREIGN KEY(hardware_id) REFERENCES hardware (id), 
	CONSTRAINT fk_series_suite_id_suite FOREIGN KEY(suite_id) REFERENCES suite (id), 
	CONSTRAINT uq_series_suite_id_hardware_id_workload_implementation_metric UNIQUE (suite_id, hardware_id, workload, implementation, metric), 
	CONSTRAINT ck_series_direction CHECK (direction IN ('lower_is_better', 'higher_is_better'))
);
INSERT INTO "series" VALUES(1,1,1,'decode/tiny','torch-eager','latency','s','lower_is_better');
INSERT INTO "series" VALUES(2,1,1,'decode/tiny','triton','latency','s','lower_is_better');
INSERT INTO "series" VALUES(3,1,2,'decode/tiny','torch-eager','latency','s','lower_is_better');
INSERT INTO "series" VALUES(4,1,2,'decode/tiny','triton','latency','s','lower_is_better');
INSERT INTO "series" VALUES(5,2,2,'decode/tiny','torch-eager','latency','s','lower_is_better');
CREATE TABLE session (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	CONSTRAINT pk_session PRIMARY KEY (id), 
	CONSTRAINT uq_session_name UNIQUE (name)
);
INSERT INTO "session" VALUES(1,'night-1');
INSERT INTO "session" VALUES(2,'night-2');
INSERT INTO "session" VALUES(3,'night-3');
INSERT INTO "session" VALUES(4,'night-4');
INSERT INTO "session" VALUES(5,'night-5');
INSERT INTO "session" VALUES(6,'night-6');
INSERT INTO "session" VALUES(7,'night-7');
INSERT INTO "session" VALUES(8,'night-8');
INSERT INTO "session" VALUES(9,'night-9');
INSERT INTO "session" VALUES(10,'synthetic');
CREATE TABLE suite (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	synthetic BOOLEAN NOT NULL, 
	CONSTRAINT pk_suite PRIMARY KEY (id), 
	CONSTRAINT uq_suite_name UNIQUE (name)
);
INSERT INTO "suite" VALUES(1,'kernels',0);
INSERT INTO "suite" VALUES(2,'synthetic',1);
CREATE INDEX ix_commit_suite_id_position ON "commit" (suite_id, position);
CREATE INDEX ix_run_commit_id_hardware_id ON run (commit_id, hardware_id);
CREATE INDEX ix_run_session_id ON run (session_id);
CREATE INDEX ix_run_suite_id_hardware_id ON run (suite_id, hardware_id);
CREATE INDEX ix_measurement_run_id ON measurement (run_id);
COMMIT;
