CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.alert (
    id bigint NOT NULL,
    series_id bigint NOT NULL,
    commit_id bigint NOT NULL,
    kind character varying(32) NOT NULL,
    ratio double precision NOT NULL,
    low double precision NOT NULL,
    high double precision NOT NULL,
    evidence json NOT NULL,
    state character varying(32) NOT NULL,
    assignee text NOT NULL COLLATE pg_catalog."C",
    note text NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT ck_alert_kind CHECK (((kind)::text = ANY ((ARRAY['regression'::character varying, 'improvement'::character varying])::text[]))),
    CONSTRAINT ck_alert_ratio CHECK (((ratio > (0)::double precision) AND (low <= high))),
    CONSTRAINT ck_alert_state CHECK (((state)::text = ANY ((ARRAY['new'::character varying, 'confirmed'::character varying, 'investigating'::character varying, 'accepted'::character varying, 'fixed'::character varying, 'backed_out'::character varying, 'invalid'::character varying, 'infrastructure'::character varying])::text[])))
);
CREATE SEQUENCE public.alert_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.alert_id_seq OWNED BY public.alert.id;
CREATE TABLE public.commit (
    id bigint NOT NULL,
    suite_id bigint NOT NULL,
    sha text NOT NULL COLLATE pg_catalog."C",
    parents json NOT NULL,
    "position" bigint,
    on_branch boolean NOT NULL,
    committed_at timestamp with time zone,
    subject text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT ck_commit_on_branch CHECK (((NOT on_branch) OR ("position" IS NOT NULL))),
    CONSTRAINT ck_commit_position CHECK (("position" > 0))
);
CREATE SEQUENCE public.commit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.commit_id_seq OWNED BY public.commit.id;
CREATE TABLE public.control (
    run_id bigint NOT NULL,
    number integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    unit text NOT NULL COLLATE pg_catalog."C",
    value double precision NOT NULL,
    working_set_bytes bigint
);
CREATE TABLE public.environment (
    id bigint NOT NULL,
    fingerprint text NOT NULL COLLATE pg_catalog."C",
    driver text NOT NULL COLLATE pg_catalog."C",
    cuda text NOT NULL COLLATE pg_catalog."C",
    torch text NOT NULL COLLATE pg_catalog."C",
    triton text NOT NULL COLLATE pg_catalog."C",
    python text NOT NULL COLLATE pg_catalog."C",
    os_kernel text NOT NULL COLLATE pg_catalog."C",
    image text NOT NULL COLLATE pg_catalog."C",
    device text NOT NULL COLLATE pg_catalog."C"
);
CREATE SEQUENCE public.environment_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.environment_id_seq OWNED BY public.environment.id;
CREATE TABLE public.hardware (
    id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    model text NOT NULL COLLATE pg_catalog."C",
    count integer NOT NULL,
    memory_bytes bigint,
    power_cap_w double precision,
    partition text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT ck_hardware_count CHECK ((count > 0))
);
CREATE SEQUENCE public.hardware_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.hardware_id_seq OWNED BY public.hardware.id;
CREATE TABLE public.measurement (
    series_id bigint NOT NULL,
    run_id bigint NOT NULL,
    status character varying(32) NOT NULL,
    verified boolean NOT NULL,
    n integer NOT NULL,
    median double precision,
    mad double precision,
    p10 double precision,
    p90 double precision,
    clock character varying(32),
    iterations bigint,
    resolution double precision NOT NULL,
    tokens bigint NOT NULL,
    bytes_moved bigint NOT NULL,
    flops bigint NOT NULL,
    working_set_bytes bigint NOT NULL,
    error double precision,
    tolerance double precision,
    reason text NOT NULL COLLATE pg_catalog."C",
    extras json NOT NULL,
    samples bytea,
    CONSTRAINT ck_measurement_clock CHECK (((clock)::text = ANY ((ARRAY['cuda_event'::character varying, 'perf_counter'::character varying, 'foreign'::character varying])::text[]))),
    CONSTRAINT ck_measurement_median CHECK ((median > (0)::double precision)),
    CONSTRAINT ck_measurement_ok_if_timed CHECK ((((status)::text = 'ok'::text) = (median IS NOT NULL))),
    CONSTRAINT ck_measurement_status CHECK (((status)::text = ANY ((ARRAY['ok'::character varying, 'checked'::character varying, 'incorrect'::character varying, 'error'::character varying, 'timeout'::character varying, 'build_failed'::character varying, 'unsupported'::character varying, 'missing'::character varying])::text[]))),
    CONSTRAINT ck_measurement_timing_whole CHECK ((((median IS NULL) = (mad IS NULL)) AND ((median IS NULL) = (p10 IS NULL)) AND ((median IS NULL) = (p90 IS NULL)) AND ((median IS NULL) = (n = 0)) AND ((median IS NULL) = (clock IS NULL)) AND ((median IS NULL) = (iterations IS NULL)) AND ((median IS NOT NULL) OR (samples IS NULL)))),
    CONSTRAINT ck_measurement_workload_sizes CHECK (((tokens >= 0) AND (bytes_moved >= 0) AND (flops >= 0) AND (working_set_bytes >= 0)))
);
CREATE TABLE public.node (
    id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    device_uuid text NOT NULL COLLATE pg_catalog."C"
);
CREATE SEQUENCE public.node_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.node_id_seq OWNED BY public.node.id;
CREATE TABLE public.run (
    id bigint NOT NULL,
    artifact_sha256 text NOT NULL COLLATE pg_catalog."C",
    path text NOT NULL COLLATE pg_catalog."C",
    suite_id bigint NOT NULL,
    commit_id bigint NOT NULL,
    hardware_id bigint NOT NULL,
    node_id bigint NOT NULL,
    environment_id bigint NOT NULL,
    session_id bigint NOT NULL,
    index integer NOT NULL,
    origin character varying(32) NOT NULL,
    status character varying(32) NOT NULL,
    harness text NOT NULL COLLATE pg_catalog."C",
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    reason text NOT NULL COLLATE pg_catalog."C",
    log_tail text NOT NULL COLLATE pg_catalog."C",
    telemetry json NOT NULL,
    CONSTRAINT ck_run_artifact_sha256 CHECK ((length(artifact_sha256) = 64)),
    CONSTRAINT ck_run_finished_at CHECK ((finished_at >= started_at)),
    CONSTRAINT ck_run_index CHECK ((index >= 0)),
    CONSTRAINT ck_run_origin CHECK (((origin)::text = ANY ((ARRAY['measured'::character varying, 'recorded'::character varying, 'synthetic'::character varying])::text[]))),
    CONSTRAINT ck_run_status CHECK (((status)::text = ANY ((ARRAY['ok'::character varying, 'error'::character varying, 'timeout'::character varying, 'build_failed'::character varying])::text[])))
);
CREATE SEQUENCE public.run_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.run_id_seq OWNED BY public.run.id;
CREATE TABLE public.series (
    id bigint NOT NULL,
    suite_id bigint NOT NULL,
    hardware_id bigint NOT NULL,
    workload text NOT NULL COLLATE pg_catalog."C",
    implementation text NOT NULL COLLATE pg_catalog."C",
    metric text NOT NULL COLLATE pg_catalog."C",
    unit text NOT NULL COLLATE pg_catalog."C",
    direction character varying(32) NOT NULL,
    CONSTRAINT ck_series_direction CHECK (((direction)::text = ANY ((ARRAY['lower_is_better'::character varying, 'higher_is_better'::character varying])::text[])))
);
CREATE SEQUENCE public.series_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.series_id_seq OWNED BY public.series.id;
CREATE TABLE public.session (
    id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C"
);
CREATE SEQUENCE public.session_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.session_id_seq OWNED BY public.session.id;
CREATE TABLE public.suite (
    id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    synthetic boolean NOT NULL
);
CREATE SEQUENCE public.suite_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.suite_id_seq OWNED BY public.suite.id;
ALTER TABLE ONLY public.alert ALTER COLUMN id SET DEFAULT nextval('public.alert_id_seq'::regclass);
ALTER TABLE ONLY public.commit ALTER COLUMN id SET DEFAULT nextval('public.commit_id_seq'::regclass);
ALTER TABLE ONLY public.environment ALTER COLUMN id SET DEFAULT nextval('public.environment_id_seq'::regclass);
ALTER TABLE ONLY public.hardware ALTER COLUMN id SET DEFAULT nextval('public.hardware_id_seq'::regclass);
ALTER TABLE ONLY public.node ALTER COLUMN id SET DEFAULT nextval('public.node_id_seq'::regclass);
ALTER TABLE ONLY public.run ALTER COLUMN id SET DEFAULT nextval('public.run_id_seq'::regclass);
ALTER TABLE ONLY public.series ALTER COLUMN id SET DEFAULT nextval('public.series_id_seq'::regclass);
ALTER TABLE ONLY public.session ALTER COLUMN id SET DEFAULT nextval('public.session_id_seq'::regclass);
ALTER TABLE ONLY public.suite ALTER COLUMN id SET DEFAULT nextval('public.suite_id_seq'::regclass);
INSERT INTO public.alembic_version VALUES ('0001');
INSERT INTO public.alert VALUES (2, 1, 5, 'improvement', 1.03, 1.01, 1.05, '{"method": "changepoint/1", "found": true}', 'new', '', '', '2026-12-01 02:00:00+00', '2026-12-01 02:00:00+00');
INSERT INTO public.alert VALUES (1, 1, 3, 'regression', 1.03, 1.01, 1.05, '{"method": "changepoint/1", "found": true}', 'accepted', 'someone', 'traded for 10 %', '2026-12-01 02:00:00+00', '2026-12-01 02:00:00+00');
INSERT INTO public.commit VALUES (1, 1, '356a192b7913b04c54574d18c28d46e6395428ab', '[]', 1, false, '2026-12-01 03:00:00+00', 'Change 1: ''quoted'', \ and größer ≤ 3 µs');
INSERT INTO public.commit VALUES (10, 1, '8baf1a8505b71286dc5ae8e3d10fc8de1aa368ca', '[]', NULL, false, '2026-12-01 02:00:00+00', 'Change number 0');
INSERT INTO public.commit VALUES (11, 2, '356a192b7913b04c54574d18c28d46e6395428ab', '[]', 1, false, '2026-12-01 03:00:00+00', 'Change number 1');
INSERT INTO public.commit VALUES (9, 1, '0ade7c2cf97f75d009975f4d720d1fa6c19f4897', '["fe5dbbcea5ce7e2988b8c69bcfdfde8904aabc1f"]', 9, true, '2026-12-01 11:00:00+00', 'Change number 9');
INSERT INTO public.commit VALUES (13, 1, '17ba0791499db908433b80f37c5fbc89b870084b', '["b1d5781111d84f7b3fe45a0852e59758cd7a87e5"]', 11, true, '2026-12-01 13:00:00+00', 'Change number 11');
INSERT INTO public.commit VALUES (4, 1, '1b6453892473a467d07372d45eb05abc2031647a', '["77de68daecd823babbb58edb1c8e14d7106e83bb"]', 4, true, '2026-12-01 06:00:00+00', 'Change number 4');
INSERT INTO public.commit VALUES (3, 1, '77de68daecd823babbb58edb1c8e14d7106e83bb', '["da4b9237bacccdf19c0760cab7aec4a8359010b0"]', 3, true, '2026-12-01 05:00:00+00', 'Change number 3');
INSERT INTO public.commit VALUES (7, 1, '902ba3cda1883801594b6e1b452790cc53948fda', '["c1dfd96eea8cc2b62785275bca38ac261256e278"]', 7, true, '2026-12-01 09:00:00+00', 'Change number 7');
INSERT INTO public.commit VALUES (5, 1, 'ac3478d69a3c81fa62e60f5c3696165a4e5e6ac4', '["1b6453892473a467d07372d45eb05abc2031647a"]', 5, true, '2026-12-01 07:00:00+00', 'Change number 5');
INSERT INTO public.commit VALUES (18, 1, 'b1d5781111d84f7b3fe45a0852e59758cd7a87e5', '["0ade7c2cf97f75d009975f4d720d1fa6c19f4897"]', 10, true, '2026-12-01 12:00:00+00', 'Change number 10');
INSERT INTO public.commit VALUES (6, 1, 'c1dfd96eea8cc2b62785275bca38ac261256e278', '["ac3478d69a3c81fa62e60f5c3696165a4e5e6ac4"]', 6, true, '2026-12-01 08:00:00+00', 'Change number 6');
INSERT INTO public.commit VALUES (2, 1, 'da4b9237bacccdf19c0760cab7aec4a8359010b0', '["356a192b7913b04c54574d18c28d46e6395428ab"]', 2, true, '2026-12-01 04:00:00+00', 'Change number 2');
INSERT INTO public.commit VALUES (8, 1, 'fe5dbbcea5ce7e2988b8c69bcfdfde8904aabc1f', '["902ba3cda1883801594b6e1b452790cc53948fda"]', 8, true, '2026-12-01 10:00:00+00', 'Change number 8');
INSERT INTO public.control VALUES (1, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (1, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (1, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (2, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (2, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (2, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (3, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (3, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (3, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (4, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (4, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (4, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (5, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (5, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (5, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (6, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (6, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (6, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (7, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (7, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (7, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (8, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (8, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (8, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (9, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (9, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (9, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (10, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (10, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (10, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (11, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (11, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (11, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (12, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (12, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (12, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (13, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (13, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (13, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (14, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (14, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (14, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (15, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (15, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (15, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (16, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (16, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (16, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (17, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (17, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (17, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (18, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (18, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (18, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.control VALUES (19, 0, 'read_bandwidth_cache', 'B/s', 40000000000, 1048576);
INSERT INTO public.control VALUES (19, 1, 'read_bandwidth_memory', 'B/s', 10000000000, 268435456);
INSERT INTO public.control VALUES (19, 2, 'matmul_rate', 'flop/s', 100000000000, NULL);
INSERT INTO public.environment VALUES (1, 'a1f1975c1798248a', '', '', '2.13.0', '3.7.1', '3.11.7', '6.1.0', '', '');
INSERT INTO public.environment VALUES (2, '03d3f37e340b65ab', '590.44', '', '2.13.0', '3.7.1', '3.11.7', '6.1.0', '', '');
INSERT INTO public.environment VALUES (3, '4039700243e17d78', '', '', '', '', '', '', '', '');
INSERT INTO public.hardware VALUES (1, 'cpu-test-2c', 'Test CPU', 1, 17179869184, NULL, '');
INSERT INTO public.hardware VALUES (2, 'h200', 'NVIDIA H200', 1, 151397597184, 700, '');
INSERT INTO public.measurement VALUES (3, 2, 'ok', true, 5, 0.010199999999999999, 0, 0.010199999999999999, 0.010199999999999999, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x87855ad3bce3843f87855ad3bce3843f87855ad3bce3843f87855ad3bce3843f87855ad3bce3843f');
INSERT INTO public.measurement VALUES (4, 2, 'checked', false, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 10000000, 1000000, 536870912, NULL, NULL, 'it is checked in this test', '{}', NULL);
INSERT INTO public.measurement VALUES (1, 3, 'ok', true, 5, 0.0103, 0, 0.0103, 0.0103, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x0ebe30992a18853f0ebe30992a18853f0ebe30992a18853f0ebe30992a18853f0ebe30992a18853f');
INSERT INTO public.measurement VALUES (2, 3, 'ok', true, 5, 0.0101, 9.99999999999994e-05, 0.01, 0.01026, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x014d840d4faf843f7b14ae47e17a843f88855ad3bce3843f7b14ae47e17a843f0ebe30992a18853f');
INSERT INTO public.measurement VALUES (3, 4, 'ok', true, 5, 0.0103, 0, 0.0103, 0.0103, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x0ebe30992a18853f0ebe30992a18853f0ebe30992a18853f0ebe30992a18853f0ebe30992a18853f');
INSERT INTO public.measurement VALUES (4, 4, 'ok', true, 5, 0.0101, 9.99999999999994e-05, 0.01, 0.01026, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x014d840d4faf843f7b14ae47e17a843f88855ad3bce3843f7b14ae47e17a843f0ebe30992a18853f');
INSERT INTO public.measurement VALUES (1, 5, 'ok', true, 5, 0.0104, 0, 0.0104, 0.0104, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x94f6065f984c853f94f6065f984c853f94f6065f984c853f94f6065f984c853f94f6065f984c853f');
INSERT INTO public.measurement VALUES (2, 5, 'error', false, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 10000000, 1000000, 536870912, NULL, NULL, 'it is error in this test', '{}', NULL);
INSERT INTO public.measurement VALUES (3, 6, 'ok', true, 5, 0.0104, 0, 0.0104, 0.0104, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x94f6065f984c853f94f6065f984c853f94f6065f984c853f94f6065f984c853f94f6065f984c853f');
INSERT INTO public.measurement VALUES (4, 6, 'error', false, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 10000000, 1000000, 536870912, NULL, NULL, 'it is error in this test', '{}', NULL);
INSERT INTO public.measurement VALUES (1, 7, 'ok', true, 5, 0.010499999999999999, 0, 0.010499999999999999, 0.010499999999999999, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x1a2fdd240681853f1a2fdd240681853f1a2fdd240681853f1a2fdd240681853f1a2fdd240681853f');
INSERT INTO public.measurement VALUES (2, 7, 'ok', true, 5, 0.0101, 9.99999999999994e-05, 0.01, 0.01026, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x014d840d4faf843f7b14ae47e17a843f88855ad3bce3843f7b14ae47e17a843f0ebe30992a18853f');
INSERT INTO public.measurement VALUES (3, 8, 'ok', true, 5, 0.010499999999999999, 0, 0.010499999999999999, 0.010499999999999999, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x1a2fdd240681853f1a2fdd240681853f1a2fdd240681853f1a2fdd240681853f1a2fdd240681853f');
INSERT INTO public.measurement VALUES (4, 8, 'ok', true, 5, 0.0101, 9.99999999999994e-05, 0.01, 0.01026, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x014d840d4faf843f7b14ae47e17a843f88855ad3bce3843f7b14ae47e17a843f0ebe30992a18853f');
INSERT INTO public.measurement VALUES (1, 9, 'ok', true, 5, 0.0106, 0, 0.0106, 0.0106, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\xa167b3ea73b5853fa167b3ea73b5853fa167b3ea73b5853fa167b3ea73b5853fa167b3ea73b5853f');
INSERT INTO public.measurement VALUES (2, 9, 'build_failed', false, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 10000000, 1000000, 536870912, NULL, NULL, 'it is build_failed in this test', '{}', NULL);
INSERT INTO public.measurement VALUES (3, 10, 'ok', true, 5, 0.0106, 0, 0.0106, 0.0106, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\xa167b3ea73b5853fa167b3ea73b5853fa167b3ea73b5853fa167b3ea73b5853fa167b3ea73b5853f');
INSERT INTO public.measurement VALUES (4, 10, 'build_failed', false, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 10000000, 1000000, 536870912, NULL, NULL, 'it is build_failed in this test', '{}', NULL);
INSERT INTO public.measurement VALUES (1, 11, 'ok', true, 5, 0.0107, 0, 0.0107, 0.0107, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x27a089b0e1e9853f27a089b0e1e9853f27a089b0e1e9853f27a089b0e1e9853f27a089b0e1e9853f');
INSERT INTO public.measurement VALUES (2, 11, 'ok', true, 5, 0.0101, 9.99999999999994e-05, 0.01, 0.01026, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x014d840d4faf843f7b14ae47e17a843f88855ad3bce3843f7b14ae47e17a843f0ebe30992a18853f');
INSERT INTO public.measurement VALUES (3, 12, 'ok', true, 5, 0.0107, 0, 0.0107, 0.0107, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x27a089b0e1e9853f27a089b0e1e9853f27a089b0e1e9853f27a089b0e1e9853f27a089b0e1e9853f');
INSERT INTO public.measurement VALUES (4, 12, 'ok', true, 5, 0.0101, 9.99999999999994e-05, 0.01, 0.01026, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x014d840d4faf843f7b14ae47e17a843f88855ad3bce3843f7b14ae47e17a843f0ebe30992a18853f');
INSERT INTO public.measurement VALUES (1, 13, 'ok', true, 5, 0.010799999999999999, 0, 0.010799999999999999, 0.010799999999999999, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\xadd85f764f1e863fadd85f764f1e863fadd85f764f1e863fadd85f764f1e863fadd85f764f1e863f');
INSERT INTO public.measurement VALUES (2, 13, 'missing', false, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 10000000, 1000000, 536870912, NULL, NULL, 'it is missing in this test', '{}', NULL);
INSERT INTO public.measurement VALUES (3, 14, 'ok', true, 5, 0.010799999999999999, 0, 0.010799999999999999, 0.010799999999999999, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\xadd85f764f1e863fadd85f764f1e863fadd85f764f1e863fadd85f764f1e863fadd85f764f1e863f');
INSERT INTO public.measurement VALUES (4, 14, 'missing', false, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 10000000, 1000000, 536870912, NULL, NULL, 'it is missing in this test', '{}', NULL);
INSERT INTO public.measurement VALUES (1, 15, 'ok', true, 5, 0.0109, 0, 0.0109, 0.0109, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x3411363cbd52863f3411363cbd52863f3411363cbd52863f3411363cbd52863f3411363cbd52863f');
INSERT INTO public.measurement VALUES (2, 15, 'ok', true, 5, 0.0101, 9.99999999999994e-05, 0.01, 0.01026, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x014d840d4faf843f7b14ae47e17a843f88855ad3bce3843f7b14ae47e17a843f0ebe30992a18853f');
INSERT INTO public.measurement VALUES (3, 16, 'ok', true, 5, 0.0109, 0, 0.0109, 0.0109, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x3411363cbd52863f3411363cbd52863f3411363cbd52863f3411363cbd52863f3411363cbd52863f');
INSERT INTO public.measurement VALUES (4, 16, 'ok', true, 5, 0.0101, 9.99999999999994e-05, 0.01, 0.01026, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x014d840d4faf843f7b14ae47e17a843f88855ad3bce3843f7b14ae47e17a843f0ebe30992a18853f');
INSERT INTO public.measurement VALUES (1, 18, 'ok', true, 5, 0.0101, 9.99999999999994e-05, 0.01, 0.01026, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x014d840d4faf843f7b14ae47e17a843f88855ad3bce3843f7b14ae47e17a843f0ebe30992a18853f');
INSERT INTO public.measurement VALUES (5, 19, 'ok', true, 5, 0.0101, 9.99999999999994e-05, 0.01, 0.01026, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', '\x014d840d4faf843f7b14ae47e17a843f88855ad3bce3843f7b14ae47e17a843f0ebe30992a18853f');
INSERT INTO public.measurement VALUES (1, 1, 'ok', true, 5, 0.010199999999999999, 0, 0.010199999999999999, 0.010199999999999999, 'perf_counter', 1, 1e-07, 1, 10000000, 1000000, 536870912, NULL, NULL, '', '{}', NULL);
INSERT INTO public.measurement VALUES (2, 1, 'checked', false, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 10000000, 1000000, 536870912, NULL, NULL, 'it is checked in this test', '{}', NULL);
INSERT INTO public.node VALUES (1, 'node-a', '');
INSERT INTO public.node VALUES (2, 'node-b', 'GPU-0001');
INSERT INTO public.run VALUES (1, 'fcda89b7ae298e6fdc5e0b07f2d53f52ba87a8ad7e1ed43209b476f11797f612', 'artifacts/0', 1, 1, 1, 1, 1, 1, 0, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-02 02:00:00.000001+00', '2026-12-02 02:00:30.000001+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (2, '0510d29633e674903ae42df7d3fdfea501adebb1d79f78189ab5b98c156e9495', 'artifacts/1', 1, 1, 2, 2, 1, 1, 1, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-02 02:01:00.000001+00', '2026-12-02 02:01:30.000001+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (3, '2f9ef7e6277b0066ccb55e6065c0c0842fa7ceb0eac6b6f6fc653cd235f4fda7', 'artifacts/2', 1, 2, 1, 1, 1, 2, 0, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-03 02:00:00.000002+00', '2026-12-03 02:00:30.000002+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (4, '2b00a3a969e779e8b88a3a3195919fc4e58fc8d285220c1280d1fe9cb379bfdb', 'artifacts/3', 1, 2, 2, 2, 1, 2, 1, 'recorded', 'ok', 'perfci/0.1.0 test', '2026-12-03 02:01:00.000002+00', '2026-12-03 02:01:30.000002+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (5, '4e25212db2ceb227f4f0a9ad6a0e08f3c7d694c7ae4ba2edb723891d6d5c50f0', 'artifacts/4', 1, 3, 1, 1, 1, 3, 0, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-04 02:00:00.000003+00', '2026-12-04 02:00:30.000003+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (6, 'af366341809e2dcc5f908bb546484081d78ea57bea19d6aa10382064eff0fdd5', 'artifacts/5', 1, 3, 2, 2, 1, 3, 1, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-04 02:01:00.000003+00', '2026-12-04 02:01:30.000003+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (7, '09185ca11d6819041ceafa176532e185eb6ddb74202c5a586018e7d9b61ac96c', 'artifacts/6', 1, 4, 1, 1, 1, 4, 0, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-05 02:00:00.000004+00', '2026-12-05 02:00:30.000004+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (8, '1abe8077f7491abaebccfaeef4f09a5fb0713a0c82c600b3e5cbe25e0ef39b1a', 'artifacts/7', 1, 4, 2, 2, 1, 4, 1, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-05 02:01:00.000004+00', '2026-12-05 02:01:30.000004+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (9, '074cceb165684c088a32edc32f65bd9e1ca7e57c8f30cfb68c536b86f952bff6', 'artifacts/8', 1, 5, 1, 1, 2, 5, 0, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-06 02:00:00.000005+00', '2026-12-06 02:00:30.000005+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (10, 'fe28c84f8acb56d9ed9b214592a910d362ed88ea09ee8e9460a578fa7adaeb41', 'artifacts/9', 1, 5, 2, 2, 2, 5, 1, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-06 02:01:00.000005+00', '2026-12-06 02:01:30.000005+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (11, '81c613ad1fb813bc1b20ccf6a65d26e49d84e00152502783384be5b7649b9e5c', 'artifacts/10', 1, 6, 1, 1, 2, 6, 0, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-07 02:00:00.000006+00', '2026-12-07 02:00:30.000006+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (12, 'c0e7e1a65cce6f16aa16c7c6af7dd995079352737ebda986caeec79beb55ebcb', 'artifacts/11', 1, 6, 2, 2, 2, 6, 1, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-07 02:01:00.000006+00', '2026-12-07 02:01:30.000006+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (13, 'd0f341eedcdccf6ee4d7afb29de4ed08bfe04ad4e3d4b48042bd5f1845d396da', 'artifacts/12', 1, 7, 1, 1, 2, 7, 0, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-08 02:00:00.000007+00', '2026-12-08 02:00:30.000007+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (14, '537b4849186990cb3467f83a705ad0f3398bcf180328489251a1886b117b0562', 'artifacts/13', 1, 7, 2, 2, 2, 7, 1, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-08 02:01:00.000007+00', '2026-12-08 02:01:30.000007+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (15, '9b49b76fd89119e45b1a917bb9c467f26f51f68ce8e0ad6e0c54925990a99d10', 'artifacts/14', 1, 8, 1, 1, 2, 8, 0, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-09 02:00:00.000008+00', '2026-12-09 02:00:30.000008+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (16, '70815d76e86d52a99651aef6ff395eecf07764bdb6aa66f7dcfd2b4baf6d8c44', 'artifacts/15', 1, 8, 2, 2, 2, 8, 1, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-09 02:01:00.000008+00', '2026-12-09 02:01:30.000008+00', '', '', '{"sm_clock_hz": [1200000000.0, 1980000000.0], "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": ["power"], "others": ["python (7)"], "load_average": null}');
INSERT INTO public.run VALUES (17, 'ae9891dfaef821178d65be8dfb3329c615306eff7f1c958accc2ac439453b293', 'artifacts/other-0', 1, 9, 1, 1, 1, 1, 0, 'measured', 'build_failed', 'perfci/0.1.0 test', '2026-12-01 02:00:00+00', '2026-12-01 02:00:30+00', 'exit code 1', 'a
b
', '{"sm_clock_hz": null, "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": [], "others": [], "load_average": 0.5}');
INSERT INTO public.run VALUES (18, 'fc0b3f025950994210929e03e738edbd425bdef3cb529f82cbc86fb18288b82d', 'artifacts/other-1', 1, 10, 1, 1, 3, 9, 1, 'measured', 'ok', 'perfci/0.1.0 test', '2026-12-01 02:01:00+00', '2026-12-01 02:01:30+00', '', '', '{"sm_clock_hz": null, "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": [], "others": [], "load_average": 0.5}');
INSERT INTO public.run VALUES (19, '4d0ee83a799c78d6fc1ff55a99260bb84e7ef05f8bd69b93d16a35b7a0e80210', 'artifacts/other-2', 2, 11, 2, 1, 1, 10, 0, 'synthetic', 'ok', 'perfci/0.1.0 test', '2026-12-01 02:00:00+00', '2026-12-01 02:00:30+00', '', '', '{"sm_clock_hz": null, "memory_clock_hz": null, "temperature_c": null, "power_w": null, "throttled": [], "others": [], "load_average": 0.5}');
INSERT INTO public.series VALUES (1, 1, 1, 'decode/tiny', 'torch-eager', 'latency', 's', 'lower_is_better');
INSERT INTO public.series VALUES (2, 1, 1, 'decode/tiny', 'triton', 'latency', 's', 'lower_is_better');
INSERT INTO public.series VALUES (3, 1, 2, 'decode/tiny', 'torch-eager', 'latency', 's', 'lower_is_better');
INSERT INTO public.series VALUES (4, 1, 2, 'decode/tiny', 'triton', 'latency', 's', 'lower_is_better');
INSERT INTO public.series VALUES (5, 2, 2, 'decode/tiny', 'torch-eager', 'latency', 's', 'lower_is_better');
INSERT INTO public.session VALUES (1, 'night-1');
INSERT INTO public.session VALUES (2, 'night-2');
INSERT INTO public.session VALUES (3, 'night-3');
INSERT INTO public.session VALUES (4, 'night-4');
INSERT INTO public.session VALUES (5, 'night-5');
INSERT INTO public.session VALUES (6, 'night-6');
INSERT INTO public.session VALUES (7, 'night-7');
INSERT INTO public.session VALUES (8, 'night-8');
INSERT INTO public.session VALUES (9, 'night-9');
INSERT INTO public.session VALUES (10, 'synthetic');
INSERT INTO public.suite VALUES (1, 'kernels', false);
INSERT INTO public.suite VALUES (2, 'synthetic', true);
SELECT pg_catalog.setval('public.alert_id_seq', 2, true);
SELECT pg_catalog.setval('public.commit_id_seq', 21, true);
SELECT pg_catalog.setval('public.environment_id_seq', 3, true);
SELECT pg_catalog.setval('public.hardware_id_seq', 2, true);
SELECT pg_catalog.setval('public.node_id_seq', 2, true);
SELECT pg_catalog.setval('public.run_id_seq', 19, true);
SELECT pg_catalog.setval('public.series_id_seq', 5, true);
SELECT pg_catalog.setval('public.session_id_seq', 10, true);
SELECT pg_catalog.setval('public.suite_id_seq', 2, true);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.alert
    ADD CONSTRAINT pk_alert PRIMARY KEY (id);
ALTER TABLE ONLY public.commit
    ADD CONSTRAINT pk_commit PRIMARY KEY (id);
ALTER TABLE ONLY public.control
    ADD CONSTRAINT pk_control PRIMARY KEY (run_id, number);
ALTER TABLE ONLY public.environment
    ADD CONSTRAINT pk_environment PRIMARY KEY (id);
ALTER TABLE ONLY public.hardware
    ADD CONSTRAINT pk_hardware PRIMARY KEY (id);
ALTER TABLE ONLY public.measurement
    ADD CONSTRAINT pk_measurement PRIMARY KEY (series_id, run_id);
ALTER TABLE ONLY public.node
    ADD CONSTRAINT pk_node PRIMARY KEY (id);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT pk_run PRIMARY KEY (id);
ALTER TABLE ONLY public.series
    ADD CONSTRAINT pk_series PRIMARY KEY (id);
ALTER TABLE ONLY public.session
    ADD CONSTRAINT pk_session PRIMARY KEY (id);
ALTER TABLE ONLY public.suite
    ADD CONSTRAINT pk_suite PRIMARY KEY (id);
ALTER TABLE ONLY public.alert
    ADD CONSTRAINT uq_alert_series_id_commit_id UNIQUE (series_id, commit_id);
ALTER TABLE ONLY public.commit
    ADD CONSTRAINT uq_commit_suite_id_sha UNIQUE (suite_id, sha);
ALTER TABLE ONLY public.environment
    ADD CONSTRAINT uq_environment_fingerprint UNIQUE (fingerprint);
ALTER TABLE ONLY public.hardware
    ADD CONSTRAINT uq_hardware_name UNIQUE (name);
ALTER TABLE ONLY public.node
    ADD CONSTRAINT uq_node_name_device_uuid UNIQUE (name, device_uuid);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT uq_run_artifact_sha256 UNIQUE (artifact_sha256);
ALTER TABLE ONLY public.series
    ADD CONSTRAINT uq_series_suite_id_hardware_id_workload_implementation_metric UNIQUE (suite_id, hardware_id, workload, implementation, metric);
ALTER TABLE ONLY public.session
    ADD CONSTRAINT uq_session_name UNIQUE (name);
ALTER TABLE ONLY public.suite
    ADD CONSTRAINT uq_suite_name UNIQUE (name);
CREATE INDEX ix_commit_suite_id_position ON public.commit USING btree (suite_id, "position");
CREATE INDEX ix_measurement_run_id ON public.measurement USING btree (run_id);
CREATE INDEX ix_run_commit_id_hardware_id ON public.run USING btree (commit_id, hardware_id);
CREATE INDEX ix_run_session_id ON public.run USING btree (session_id);
CREATE INDEX ix_run_suite_id_hardware_id ON public.run USING btree (suite_id, hardware_id);
ALTER TABLE ONLY public.alert
    ADD CONSTRAINT fk_alert_commit_id_commit FOREIGN KEY (commit_id) REFERENCES public.commit(id);
ALTER TABLE ONLY public.alert
    ADD CONSTRAINT fk_alert_series_id_series FOREIGN KEY (series_id) REFERENCES public.series(id);
ALTER TABLE ONLY public.commit
    ADD CONSTRAINT fk_commit_suite_id_suite FOREIGN KEY (suite_id) REFERENCES public.suite(id);
ALTER TABLE ONLY public.control
    ADD CONSTRAINT fk_control_run_id_run FOREIGN KEY (run_id) REFERENCES public.run(id);
ALTER TABLE ONLY public.measurement
    ADD CONSTRAINT fk_measurement_run_id_run FOREIGN KEY (run_id) REFERENCES public.run(id);
ALTER TABLE ONLY public.measurement
    ADD CONSTRAINT fk_measurement_series_id_series FOREIGN KEY (series_id) REFERENCES public.series(id);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT fk_run_commit_id_commit FOREIGN KEY (commit_id) REFERENCES public.commit(id);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT fk_run_environment_id_environment FOREIGN KEY (environment_id) REFERENCES public.environment(id);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT fk_run_hardware_id_hardware FOREIGN KEY (hardware_id) REFERENCES public.hardware(id);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT fk_run_node_id_node FOREIGN KEY (node_id) REFERENCES public.node(id);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT fk_run_session_id_session FOREIGN KEY (session_id) REFERENCES public.session(id);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT fk_run_suite_id_suite FOREIGN KEY (suite_id) REFERENCES public.suite(id);
ALTER TABLE ONLY public.series
    ADD CONSTRAINT fk_series_hardware_id_hardware FOREIGN KEY (hardware_id) REFERENCES public.hardware(id);
ALTER TABLE ONLY public.series
    ADD CONSTRAINT fk_series_suite_id_suite FOREIGN KEY (suite_id) REFERENCES public.suite(id);
