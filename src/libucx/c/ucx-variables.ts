/**
 * Variables of C UCX that are not a field of this library, as data: those that have no meaning here, and those that must not be ignored.
 *
 * The names are those of UCX 1.22, as its ucx_info prints them (-c -a, with the CUDA components), built without InfiniBand. The InfiniBand tables are from
 * a build of UCX 1.23, dc and rdmacm from UCX 1.13. Components that none of these builds has (ROCm, Level Zero, gdr_copy, gga, xpmem, knem, ugni,
 * gaudi_gdr) are known by prefix only. test/fixtures/ucx-variables.txt lists the names with their sources.
 */

import type { Config } from '../../ucs/config/config.ts';
import { joinedError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/** The version of C UCX that the variables are from. */
export const UCX_VARIABLES_VERSION = '1.22';

const PREFIX = 'UCX_';

/** A variable that is not a field. */
export interface UcxVariable {
  /** `none`: ignored silently, because it has no meaning here; `refused`: an error, because ignoring it would be wrong. */
  readonly use: 'none' | 'refused';
  /** Why; for `refused` also the remedy. */
  readonly reason: string;
  /** Values of a refused variable that change nothing, such as its default, in lower case. */
  readonly harmless?: readonly string[];
  /** True for a refused variable that matters only if the context uses RDMA devices. */
  readonly isRdma?: boolean;
}

/** Variables with the same reason. */
export interface UcxVariableGroup extends UcxVariable {
  /** Names without `UCX_`, or prefixes that end in `*`. */
  readonly names: readonly string[];
}

/** Interface transports: the tables of all of them begin with the same fields in C UCX. */
const INTERFACES = ['CMA', 'SCOPY', 'POSIX', 'MM', 'SM', 'SELF', 'TCP', 'RC_VERBS', 'RC', 'IB'] as const;
/** Tables of RDMA interfaces: each inherits the fields of the previous ones. */
const RDMA = ['IB', 'RC', 'RC_VERBS'] as const;

function none(reason: string, names: string): UcxVariableGroup {
  return { use: 'none', reason, names: names.trim().split(/\s+/) };
}

function refused(reason: string, harmless: readonly string[], names: string, isRdma: boolean): UcxVariableGroup {
  return { use: 'refused', reason, harmless, isRdma, names: names.trim().split(/\s+/) };
}

function each(prefixes: readonly string[], names: string): string {
  const fields = names.trim().split(/\s+/);
  return prefixes.flatMap((prefix) => fields.map((name) => `${prefix}_${name}`)).join(' ');
}

/** Every name is in at most one group. */
export const UCX_VARIABLE_GROUPS: readonly UcxVariableGroup[] = [
  refused(
    'some lanes execute atomics on the NIC and others on the CPU, which are not atomic to each other: select transports with one kind by UCX_TLS',
    ['guess', ''],
    'ATOMIC_MODE',
    true,
  ),
  refused(
    'ports of other subnets would be used: list the ports in UCX_NET_DEVICES',
    ['', 'n', 'no', 'off', '0', 'all'],
    `IB_SUBNET_PREFIX ${each(RDMA, 'ROCE_LOCAL_SUBNET ROCE_SUBNETS')}`,
    true,
  ),
  refused(
    'device memory would still be registered with RDMA devices: use UCX_GAUDI_COPY_DMABUF=n',
    ['', 'try', 'y', 'yes', 'on', '1'],
    'IB_GPU_DIRECT_RDMA',
    true,
  ),
  refused(
    'this library does not enforce such a limit: limit the process by ulimit or a cgroup',
    ['', 'inf'],
    'MEMTRACK_LIMIT',
    false,
  ),
  none(
    'belongs to hardware or kernel modules that no transport here uses',
    'CUDA_* GDR_COPY_* ROCM_* ZE_* KNEM_* XPMEM_* UGNI_* GDP_ENABLE',
  ),
  none(
    'belongs to a transport of C UCX that the native engine lacks',
    'SYSV_* DC_* UD_* SRD_* GGA_* RC_MLX5_* RC_GDA_* IB_MLX5_* IB_GDA_* RDMA_CM_* GAUDI_GDR_*',
  ),
  none('sets hooks of memory allocation; this library detects freed memory in other ways', 'MEM_*'),
  none(
    'sets the size of buffers or pools of C UCX; this library sizes its own',
    `
    ${each(INTERFACES, 'TX_BUFS_GROW TX_GROW_FACTOR TX_MAX_BUFS TX_MAX_CHUNK_SIZE RX_BUFS_GROW RX_GROW_FACTOR RX_MAX_BUFS RX_MAX_CHUNK_SIZE')}
    RX_MPOOL_SIZES RKEY_MPOOL_MAX_MD SEG_SIZE SELF_SEG_SIZE CMA_SEG_SIZE SCOPY_SEG_SIZE TCP_CM_PRIV_DATA_LEN RKEY_PTR_SEG_SIZE MEM_ALLOC_ALIGN`,
  ),
  none(
    'sets a limit or cost of an interface, which each transport of this library fixes',
    `
    ${each(INTERFACES, 'ALLOC FAILURE MAX_BCOPY MAX_SHORT MAX_NUM_EPS MAX_IOV')} ALLOC FAILURE MAX_NUM_EPS CM_FAILURE SCOPY_TX_QUOTA
    ALLOC_PRIO CMA_TX_QUOTA CMA_MEMORY_INVALIDATE POSIX_SEND_OVERHEAD POSIX_RECV_OVERHEAD SELF_NUM_DEVICES TCP_SENDV_THRESH TCP_PUT_ENABLE TCP_PREFER_DEFAULT
    TCP_CM_FAILURE BCOPY_BW DISTANCE_BW DISTANCE_LAT PROTO_OVERHEAD`,
  ),
  none(
    'sets queues in shared memory, which this library sizes itself',
    `
    ${each(['POSIX', 'MM'], 'FIFO_HUGETLB HUGETLB_MODE FIFO_MAX_POLL FIFO_RELEASE_FACTOR ERROR_HANDLING')} POSIX_SHM_MIN_SIZE`,
  ),
  none(
    'sets a detail of TCP connections, which this library leaves to the kernel',
    `
    TCP_CONN_NB TCP_MAX_CONN_RETRIES TCP_SYN_CNT TCP_USER_TIMEOUT TCP_CM_SNDBUF TCP_CM_RCVBUF TCP_CM_SYN_CNT TCP_CM_USER_TIMEOUT LISTENER_BACKLOG`,
  ),
  none(
    'sets a detail of InfiniBand in C UCX that the transport rc of this library does not have',
    `
    ${each(
      RDMA,
      `ADDR_TYPE COUNTER_SET_ID ECE FLID_ROUTE IS_GLOBAL LID_PATH_BITS NUM_PATHS REVERSE_SL ROCE_PATH_FACTOR ROCE_REACHABILITY_MODE ROCE_SUBNET_PREFIX_LEN
    RX_INLINE RX_MAX_BATCH RX_MAX_POLL RX_QUEUE_LEN_INIT SEND_OVERHEAD TX_INLINE_RESP TX_MAX_BATCH TX_MAX_POLL TX_MIN_SGE TX_CQ_LEN TX_MAX_WR TX_NUM_GET_BYTES
    TX_NUM_GET_OPS TX_POLL_ALWAYS FC_ENABLE FC_HARD_THRESH FC_SOFT_THRESH FENCE FLUSH_MODE MAX_AM_HDR MAX_GET_ZCOPY`,
    )}
    IB_AH_CACHE_TTL IB_ASYNC_EVENTS IB_DEVICE_SPECS IB_DIRECT_NIC IB_ETH_PAUSE_ON IB_FORK_INIT IB_INDIRECT_ATOMIC IB_MAX_IDLE_RKEY_COUNT IB_MEM_REG_GROWTH
    IB_MEM_REG_OVERHEAD IB_ODP_MEM_TYPES IB_ODP_MAX_SIZE IB_ODP_NUMA_POLICY IB_ODP_PREFETCH IB_PCI_BW IB_PCI_RELAXED_ORDERING IB_PREFER_NEAREST_DEVICE IB_REG_METHODS
    IB_REG_MT_BIND IB_REG_MT_CHUNK IB_REG_MT_THRESH IB_REG_RETRY_CNT IB_SMKEY_BLOCK_SIZE IB_XGVMI_UMR_ENABLE IB_RCACHE_ADDR_ALIGN MAX_HCA_PER_GPU
    ${each(['IB', 'RC'], 'AR_ENABLE CQE_ZIPPING_ENABLE DM_COUNT DM_SIZE MMIO_MODE')}
    ${each(['RC'], 'EXP_BACKOFF LOG_ACK_REQ_FREQ SRQ_TOPO TM_ENABLE TM_LIST_SIZE TM_MP_NUM_STRIDES TM_MP_SRQ_ENABLE TM_SEG_SIZE TX_MAX_BB')}
    CM_USE_ALL_DEVICES TM_FORCE_THRESH TM_MAX_BB_SIZE TM_SW_RNDV TM_THRESH PREFER_OFFLOAD`,
  ),
  none(
    'is for debugging C code: gaudi-ucx inspect shows a running process, and UCX_HANDLE_ERRORS=freeze lets one wait for a debugger',
    `
    ERROR_MAIL_TO ERROR_MAIL_FOOTER GDB_COMMAND VFS_ENABLE VFS_SOCK_PATH VFS_THREAD_AFFINITY MEMTRACK_DEST PROTO_INFO_DIR`,
  ),
  none(
    'sets a detail of the log of C UCX',
    `
    LOG_BUFFER LOG_DATA_SIZE LOG_FILE_FILTER LOG_LEVEL_TRIGGER LOG_PRINT_ENABLE MODULE_LOG_LEVEL`,
  ),
  none(
    'concerns threads, signals, modules or copy routines of C UCX, which this library does not use',
    `
    ASYNC_MAX_EVENTS ASYNC_SIGNO USE_MT_MUTEX MODULES MODULE_DIR PLUGIN_PATH ADAPTIVE_PROGRESS BUILTIN_MEMCPY_MIN BUILTIN_MEMCPY_MAX NT_BUFFER_TRANSFER_MIN TOPO_PRIO`,
  ),
  none(
    'sets memory registration in C UCX; this library has its own registration caches',
    `
    GVA_ENABLE GVA_MLOCK GVA_PREFETCH RCACHE_ADDR_ALIGN RCACHE_CHECK_PFN RCACHE_MEM_PRIO RCACHE_PURGE_ON_FORK RCACHE_STAT_MIN RCACHE_STAT_MAX IB_RCACHE_MEM_PRIO
    IB_RCACHE_PURGE_ON_FORK REG_NONBLOCK_FALLBACK REG_NONBLOCK_MEM_TYPES MEMTYPE_COPY_ENABLE MEMTYPE_REG_WHOLE_ALLOC_TYPES`,
  ),
  none(
    'sets addresses or connection setup of C UCX: the native engine has its own layouts, connects all lanes at once, and does not scale buffers by the number of peers',
    `
    ADDRESS_VERSION SA_DATA_VERSION UNIFIED_MODE CONNECT_ALL_TO_ALL RESOLVE_REMOTE_EP_ID PROTO_INDIRECT_ID WIREUP_VIA_AM_LANE SOCKADDR_AUX_TLS MAX_WORKER_NAME
    MAX_WORKER_ADDRESS_NAME MAX_COMPONENT_MDS NUM_EPS NUM_PPN NODE_LOCAL_ID KEEPALIVE_NUM_EPS SELECT_DISTANCE_MD`,
  ),
  none(
    'switches busy endpoints to other transports: here every operation selects among all lanes',
    `
    DYNAMIC_TL_SWITCH_INTERVAL DYNAMIC_TL_PROGRESS_FACTOR MAX_PRIORITY_EPS RECOVERY_RETRIES`,
  ),
  none(
    'sets protocol selection in C UCX: the native engine uses its own estimates, sends an eager message over one lane, and has fragments in host memory only',
    `
    PROTO_ENABLE MAX_EAGER_RAILS MAX_EAGER_LANES MULTI_PATH_RATIO PROTOS PROTO_REQUEST_RESET EXTRA_OP_ATTR_FLAGS FENCE_MODE FLUSH_WORKER_EPS RMA_PPLN_ENABLE RMA_ZCOPY_MAX_SEG_SIZE
    RNDV_ALIGN_THRESH RNDV_FRAG_MEM_TYPE RNDV_FRAG_MEM_TYPES RNDV_MEMTYPE_DIRECT_SIZE RNDV_PERF_DIFF RNDV_PIPELINE_ERROR_HANDLING RNDV_PIPELINE_SEND_THRESH
    RNDV_PIPELINE_SHM_ENABLE RNDV_PIPELINE_SHM_CUDA_STAGING_FORCE RNDV_PUT_FORCE_FLUSH RNDV_SEND_NBR_THRESH RNDV_THRESH_FALLBACK`,
  ),
];

const BY_NAME: ReadonlyMap<string, UcxVariableGroup> = new Map(
  UCX_VARIABLE_GROUPS.flatMap((group) => group.names.map((name) => [name, group] as const)),
);
const BY_PREFIX: readonly (readonly [prefix: string, group: UcxVariableGroup])[] = [...BY_NAME].flatMap(
  ([name, group]) => (name.endsWith('*') ? [[name.slice(0, -1), group] as const] : []),
);

/** Transports of C UCX with InfiniBand fields; among them those with the fields of mlx5 reliable connections, and of datagrams. */
const IB_FAMILIES = ['RC_GDA', 'RC_MLX5', 'SRD', 'UD_MLX5', 'UD_VERBS', 'DC_MLX5'] as const;
const RC_FAMILIES = ['RC_GDA', 'RC_MLX5', 'DC_MLX5'] as const;
const UD_FAMILIES = ['UD_MLX5', 'UD_VERBS'] as const;

/** Names within groups that are known by prefix only: for spelling hints. */
const FAMILY_NAMES = `
  ${each(['CUDA_COPY', 'CUDA_IPC', 'SYSV', ...IB_FAMILIES], 'ALLOC FAILURE MAX_BCOPY MAX_NUM_EPS MAX_SHORT')}
  ${each(['CUDA_COPY', 'CUDA_IPC'], 'BW MAX_EVENTS MAX_POLL')} ${each(['SYSV', ...IB_FAMILIES], 'RX_BUFS_GROW RX_MAX_BUFS SEG_SIZE RX_GROW_FACTOR RX_MAX_CHUNK_SIZE SEND_OVERHEAD')}
  ${each(['CUDA_COPY'], 'ASYNC_MEM_TYPE DMABUF ENABLE_FABRIC MAX_REG_RATIO PREF_LOC REG_WHOLE_ALLOC RETAIN_PRIMARY_CTX')}
  ${each(['CUDA_IPC'], 'CACHE CACHE_MAX_REGIONS CACHE_MAX_SIZE ENABLE_GET_ZCOPY ENABLE_MNNVL LAT MAX_STREAMS OVERHEAD ENABLE_SAME_PROCESS')}
  ${each(
    ['MEM'],
    `ALLOC_ALIGN BISTRO_FORCE_FAR_JUMP BISTRO_GRACE_DURATION CUDA_HOOK_MODE CUDA_RELOC DLOPEN_PROCESS_RPATH DYNAMIC_MMAP_THRESH EVENTS LOG_LEVEL
    MALLOC_HOOKS MALLOC_RELOC MMAP_HOOK_MODE MODULE_UNLOAD_PREVENT_MODE`,
  )}
  ${each(['SYSV'], 'BW ERROR_HANDLING FIFO_ELEM_SIZE FIFO_HUGETLB FIFO_MAX_POLL FIFO_RELEASE_FACTOR FIFO_SIZE HUGETLB_MODE RECV_OVERHEAD')}
  ${each(['IB_GDA'], 'DMABUF_ENABLE MAX_HCA_PER_GPU RETAIN_INACTIVE_CTX')} ${each(['IB_MLX5'], 'DEVX DEVX_OBJECTS DV')}
  ${each(
    IB_FAMILIES,
    `ADDR_TYPE HOP_LIMIT IS_GLOBAL LID_PATH_BITS NUM_PATHS PATH_MTU PKEY ROCE_LOCAL_SUBNET ROCE_PATH_FACTOR ROCE_SUBNET_PREFIX_LEN RX_INLINE RX_MAX_BATCH
    RX_MAX_POLL RX_QUEUE_LEN SL TRAFFIC_CLASS TX_BUFS_GROW TX_INLINE_RESP TX_MAX_BATCH TX_MAX_BUFS TX_MAX_POLL TX_MIN_INLINE TX_MIN_SGE TX_QUEUE_LEN COUNTER_SET_ID
    FLID_ROUTE REVERSE_SL ROCE_REACHABILITY_MODE ROCE_SUBNETS TX_GROW_FACTOR TX_MAX_CHUNK_SIZE`,
  )}
  ${each([...RC_FAMILIES, 'UD_MLX5'], 'AR_ENABLE DM_COUNT DM_SIZE MMIO_MODE CQE_ZIPPING_ENABLE RX_CQE_ZIP_ENABLE TX_CQE_ZIP_ENABLE')}
  ${each([...RC_FAMILIES, ...UD_FAMILIES], 'TIMEOUT')} ${each(['RC_GDA', 'RC_MLX5'], 'DDP_ENABLE ECE')} ${each(['RC_GDA'], 'EP_ALLOC_MODE NUM_CHANNELS NUM_PRE_ALLOC_EPS')}
  ${each(
    RC_FAMILIES,
    `EXP_BACKOFF FC_ENABLE FC_HARD_THRESH FC_WND_SIZE FENCE LOG_ACK_REQ_FREQ MAX_GET_ZCOPY MAX_RD_ATOMIC RETRY_COUNT RNR_RETRY_COUNT RNR_TIMEOUT SRQ_TOPO
    TM_ENABLE TM_LIST_SIZE TM_MAX_BCOPY TM_MP_NUM_STRIDES TM_MP_SRQ_ENABLE TM_SEG_SIZE TX_MAX_BB TX_NUM_GET_BYTES TX_NUM_GET_OPS TX_POLL_ALWAYS`,
  )}
  ${each(['RC_MLX5'], 'FC_SOFT_THRESH TX_CQ_LEN TX_CQ_MODERATION')} ${each(['SRD', ...UD_FAMILIES, 'DC_MLX5'], 'RX_QUEUE_LEN_INIT')}
  ${each(UD_FAMILIES, 'ASYNC_TIMER_TICK ETH_DGID_CHECK LINGER_TIMEOUT MAX_WINDOW MIN_POKE_TIME RX_ASYNC_MAX_POLL TIMER_BACKOFF TIMER_TICK COMPACT_AV')}
  ${each(
    ['DC_MLX5'],
    'COMPACT_AV DCI_FULL_HANDSHAKE DCI_KA_FULL_HANDSHAKE DCT_FULL_HANDSHAKE FC_HARD_REQ_TIMEOUT NUM_DCI QUOTA RAND_DCI_SEED TX_POLICY',
  )}
  ${each(['RDMA_CM'], 'FAILURE RESERVED_QPN REUSEADDR SOURCE_ADDRESS TIMEOUT')}`;

/** Names of all these variables: for spelling hints. */
export function ucxVariableNames(): string[] {
  const names = [...BY_NAME.keys()].filter((name) => !name.endsWith('*'));
  return [...names, ...FAMILY_NAMES.trim().split(/\s+/)].map((name) => `${PREFIX}${name}`);
}

/** Looks up a variable by its name without `UCX_`; undefined if C UCX does not have it either. */
export function ucxVariable(name: string): UcxVariable | undefined {
  return BY_NAME.get(name) ?? BY_PREFIX.find(([prefix]) => name.startsWith(prefix) && name !== prefix)?.[1];
}

/** Like {@link ucxVariable}, by the full name of a variable, in which a prefix of the program may precede `UCX_`. */
export function ucxVariableNamed(variable: string): UcxVariable | undefined {
  const at = variable.indexOf(PREFIX);
  return at < 0 ? undefined : ucxVariable(variable.slice(at + PREFIX.length));
}

/** Settings of variables that must not be ignored: one sentence each, with the reason. @param usesRdma true if the context uses RDMA devices */
export function unignorableSettings({ unused }: Pick<Config, 'unused'>, usesRdma: boolean): string[] {
  return unused.flatMap(({ variable, text }) => {
    const found = ucxVariableNamed(variable);
    if (found?.use !== 'refused' || (found.isRdma === true && !usesRdma)) return [];
    if (found.harmless?.includes(text.trim().toLowerCase()) === true) return [];
    return [`${variable}=${text} is not supported by engine native: ${found.reason}; UCX_ENGINE=libucx supports it`];
  });
}

/**
 * Rejects variables that the native engine must not ignore, all in one error.
 * @param usesRdma true if the context uses RDMA devices
 * @throws UcxError ERR_UNSUPPORTED
 */
export function rejectUnignorable(config: Pick<Config, 'unused'>, usesRdma: boolean): void {
  const messages = unignorableSettings(config, usesRdma);
  const error = joinedError(
    messages.map((message) => new UcxError({ code: 'ERR_UNSUPPORTED', status: Status.UNSUPPORTED, message })),
  );
  if (error !== undefined) throw error;
}
