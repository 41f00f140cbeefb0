/**
 * What the libucx engine does with each configuration field, as data. Used for docs/CONFIG.md, for the warning about a setting without effect, for the
 * error for a setting that must not be ignored, and to choose the engine.
 */

/** What happens to the value of a field: `read` by this library, `passed` to libucp, `none` (no effect), or `refused` (an error unless it is the default). */
export type FieldUse = 'read' | 'passed' | 'none' | 'refused';

/** Fields about cards: read by the native context beside libucp. */
const CARD_FIELD = /^GAUDI_/;

const READ: readonly string[] = [
  'LOG_LEVEL',
  'LOG_FILE',
  'LOG_FILE_SIZE',
  'LOG_FILE_ROTATE',
  'WARN_UNUSED_ENV_VARS',
  'STATS_DEST',
  'STATS_TRIGGER',
  'STATS_FILTER',
  'STATS_FORMAT',
  'STATS_LATENCY',
  'PROFILE_MODE',
  'PROFILE_FILE',
  'PROFILE_LOG_SIZE',
  'INSPECT',
  'DEBUG_SIGNO',
  'HANDLE_ERRORS',
  'ERROR_SIGNALS',
  'PRINT_TRANSPORT_TABLES',
  'ENGINE',
  'LIBUCP_PATH',
  'TCP_CM_ANSWER_TIMEOUT',
  'PROGRESS_SPIN',
  'REQUESTS_MAX',
  'RCACHE_ENABLE',
  'MEMTYPE_CACHE',
];

/** Fields that libucp has too, with the same meaning (UCX 1.13; if a version lacks one, a warning names it). */
const PASSED: readonly string[] = [
  'TLS',
  'NET_DEVICES',
  'SHM_DEVICES',
  'ACC_DEVICES',
  'SELF_DEVICES',
  'WARN_INVALID_CONFIG',
  'RNDV_THRESH',
  'RNDV_SCHEME',
  'BCOPY_THRESH',
  'ZCOPY_THRESH',
  'RNDV_FRAG_SIZE',
  'RNDV_FRAG_ALLOC_COUNT',
  'MAX_RNDV_RAILS',
  'MIN_RNDV_CHUNK_SIZE',
  'MAX_RMA_RAILS',
  'MIN_RMA_CHUNK_SIZE',
  'SINGLE_NET_DEVICE',
  'MULTI_LANE_MAX_RATIO',
  'KEEPALIVE_INTERVAL',
  'PROTO_INFO',
  'SOCKADDR_TLS_PRIORITY',
  'PROTO_EMULATION_ENABLE',
  'ADDRESS_DEBUG_INFO',
  'TCP_CM_REUSEADDR',
  'IB_PATH_MTU',
  'IB_PKEY',
  'POSIX_DIR',
  'POSIX_USE_PROC_LINK',
  'POSIX_FIFO_SIZE',
  'POSIX_FIFO_ELEM_SIZE',
  'POSIX_SEG_SIZE',
  'POSIX_BW',
  'CMA_BW',
  'TCP_AF_PRIO',
  'TCP_BRIDGE_ENABLE',
  'TCP_EP_BIND_SRC_ADDR',
  'TCP_TX_SEG_SIZE',
  'TCP_RX_SEG_SIZE',
  'TCP_MAX_POLL',
  'TCP_NODELAY',
  'TCP_SNDBUF',
  'TCP_RCVBUF',
  'TCP_PORT_RANGE',
  'TCP_KEEPIDLE',
  'TCP_KEEPINTVL',
  'TCP_KEEPCNT',
  'IB_SEG_SIZE',
  'IB_GID_INDEX',
  'IB_SL',
  'IB_TRAFFIC_CLASS',
  'IB_HOP_LIMIT',
  'IB_RCACHE_OVERHEAD',
  'IB_RCACHE_MAX_REGIONS',
  'IB_RCACHE_MAX_SIZE',
  'IB_RCACHE_MAX_UNRELEASED',
  'RC_TX_QUEUE_LEN',
  'RC_TX_MIN_INLINE',
  'RC_TX_CQ_MODERATION',
  'RC_RX_QUEUE_LEN',
  'RC_FC_WND_SIZE',
  'RC_TIMEOUT',
  'RC_RETRY_COUNT',
  'RC_RNR_TIMEOUT',
  'RC_RNR_RETRY_COUNT',
  'RC_MAX_RD_ATOMIC',
];

const NONE: readonly string[] = [
  'UNEXP_MAX_BYTES',
  'POSIX_SEG_COUNT',
  'POSIX_LATENCY',
  'POSIX_OVERHEAD',
  'CMA_LATENCY',
  'CMA_OVERHEAD',
  'TCP_CM_TIMEOUT',
  'TCP_CM_MAX_CLIENTS',
  'TCP_CM_MAX_REQUESTS',
  'TCP_BACKLOG',
  'TCP_CONNECT_TIMEOUT',
  'TCP_KEY_FILE',
  'TCP_PEER_TIMEOUT',
  'TCP_MAX_BW',
  'TCP_LATENCY',
  'TCP_OVERHEAD',
  'IB_DRIVER',
  'IB_RCACHE',
  'RC_CONNECT_TIMEOUT',
];

/** Ignoring this field would send data in clear although the program asked for protection. */
const REFUSED: readonly string[] = ['TCP_SECURITY'];

const USES: ReadonlyMap<string, FieldUse> = new Map(
  Object.entries({ read: READ, passed: PASSED, none: NONE, refused: REFUSED }).flatMap(([use, names]) =>
    names.map((name) => [name, use as FieldUse] as const),
  ),
);

/** The use of a field by its name without `UCX_`; undefined for a name that is not a field. */
export function fieldUseOf(name: string): FieldUse | undefined {
  return CARD_FIELD.test(name) ? 'read' : USES.get(name);
}
