/** Every refusal of the emulated driver, in the order of its files and functions. refusals.test.ts compares the table with the source. */

import { choice, type Refusing, refuses } from './source.ts';

const CB = 'common/command_buffer.c: ';
const CS = 'common/command_submission.c: ';
const IOCTL = 'common/habanalabs_ioctl.c: ';
const MEMORY = 'common/memory.c: ';
const DEBUGFS = 'common/debugfs.c: ';
const MAPPED = 'common/memory_mgr.c: hl_mem_mgr_mmap';
const CORESIGHT = 'gaudi2/gaudi2_coresight.c: ';
const CLOSED = choice('the kernel has no descriptor for a closed file; callers of the port may call it late');
const THROWN = choice('the emulated driver has thrown, which is a bug in it');
const OPERATIONAL = 'the card is not operational';

export const DRIVER_REFUSALS: readonly Refusing[] = [
  refuses('driver/attributes.ts writeCardAttribute', 'common/sysfs.c: soft_reset_store, hard_reset_store', [
    ['ENODEV', OPERATIONAL, 'common/sysfs.c: clk_max_freq_mhz_store'],
    ['EINVAL', 'not a number'],
  ]),
  refuses('driver/card.ts Card.openControl', 'common/habanalabs_drv.c: hl_device_open_ctrl', [
    ['EPERM', 'the card has failed'],
    [
      'ENODEV',
      'the card was removed',
      choice('the kernel removes the node, for which a late open has no errno of its driver'),
    ],
  ]),
  refuses('driver/card.ts Card.#openErrno', 'common/habanalabs_drv.c: hl_device_open', [
    ['ENODEV', 'the card was removed', 'kernel: drm_minor_acquire'],
    ['EAGAIN', 'the card is in reset'],
    ['EAGAIN', 'the card is in reset after a release'],
    ['EPERM', OPERATIONAL],
    ['EBUSY', 'a compute context exists'],
  ]),
  refuses('driver/debugfs.ts DebugFs.read', 'kernel: vfs_read', [
    ['ENOENT', 'no such file'],
    ['EINVAL', 'a file that can only be written'],
  ]),
  refuses('driver/debugfs.ts DebugFs.write', 'kernel: vfs_write', [
    ['ENOENT', 'no such file'],
    ['EINVAL', 'a file that can only be read'],
  ]),
  refuses('driver/debugfs.ts DebugFs.#readByDma', `${DEBUGFS}hl_dma_size_write`, [
    ['EINVAL', 'no bytes, too many, or an address outside of the ranges'],
    ['EIO', 'the engine does not work'],
    ['EIO', 'an address without memory'],
  ]),
  refuses('driver/debugfs.ts DebugFs.#stateNodes.stop_on_err.read', `${DEBUGFS}hl_stop_on_err_read`, [
    ['EOPNOTSUPP', 'a generation without configurable_stop_on_err'],
  ]),
  refuses('driver/debugfs.ts DebugFs.#stateNodes.stop_on_err.write', `${DEBUGFS}hl_stop_on_err_write`, [
    ['EOPNOTSUPP', 'a generation without configurable_stop_on_err'],
  ]),
  refuses('driver/debugfs.ts DebugFs.#command', `${DEBUGFS}hl_device_write`, [['EINVAL', 'an unknown command']]),
  refuses('driver/debugfs.ts DeviceWindow.read', `${DEBUGFS}hl_access_mem`, [['EINVAL', 'an address without memory']]),
  refuses('driver/debugfs.ts DeviceWindow.write', `${DEBUGFS}hl_access_mem`, [['EINVAL', 'an address without memory']]),
  refuses('driver/base/dmabuf.ts DmabufRegistry.find', 'kernel: dma_buf_get', [
    ['EBADF', 'a closed descriptor'],
    ['EINVAL', 'a descriptor of something else, or of a revoked dma-buf'],
  ]),
  refuses('driver/base/firmware.ts store', 'kernel: hwmon_attr_store', [
    ['ENODEV', OPERATIONAL, 'common/hwmon.c: hl_write'],
  ]),
  refuses('driver/base/notifier.ts Notifier.register', `${IOCTL}eventfd_register`, [
    ['EINVAL', 'registered already'],
    ['EINVAL', 'a descriptor of something else', 'kernel: eventfd_ctx_fdget'],
  ]),
  refuses('driver/base/notifier.ts Notifier.unregister', `${IOCTL}eventfd_unregister`, [['EINVAL', 'not registered']]),
  refuses('driver/base/numbers.ts parseNumber', 'kernel: kstrtoull', [
    ['EINVAL', 'not a number'],
    ['ERANGE', 'too large'],
  ]),
  refuses('driver/base/numbers.ts parseSignedNumber', 'kernel: kstrtol', [
    ['EINVAL', 'not a number'],
    ['ERANGE', 'too large'],
  ]),
  refuses('driver/ioctl/command-buffer.ts commandBufferIoctl', `${CB}hl_cb_ioctl`, [
    ['EBUSY', OPERATIONAL],
    ['EINVAL', 'unknown op'],
  ]),
  refuses('driver/ioctl/command-buffer.ts create', `${CB}hl_cb_create`, [
    ['EINVAL', 'too large', `${CB}hl_cb_ioctl`],
    ['ENOMEM', 'MAP on a generation without it (cb_map_mem fails in the allocation)'],
    ['ENOMEM', 'no device address left'],
  ]),
  refuses('driver/ioctl/command-buffer.ts destroy', `${CB}hl_cb_destroy`, [['EINVAL', 'unknown or destroyed']]),
  refuses('driver/ioctl/command-buffer.ts info', `${CB}hl_cb_info`, [['EINVAL', 'unknown, or without device address']]),
  refuses('driver/ioctl/debug.ts debugIoctl', `${IOCTL}hl_debug_ioctl`, [
    ['EBUSY', OPERATIONAL],
    ['EINVAL', 'unknown op'],
    ['EFAULT', 'not in debug mode'],
  ]),
  refuses('driver/ioctl/debug.ts vendorOp', "vendor's driver: common/habanalabs_ioctl.c: hl_debug_ioctl", [
    ['EFAULT', 'not in debug mode, or for simulated cards'],
  ]),
  refuses('driver/ioctl/debug.ts setMode', 'common/device.c: hl_device_set_debug_mode', [
    ['EFAULT', 'the mode is so already'],
  ]),
  refuses('driver/ioctl/debug.ts debugCoresight', `${IOCTL}debug_coresight`, [
    ['EFAULT', 'parameters not in memory'],
    ['ENOMEM', 'more output than the kernel allocates'],
    ['EFAULT', 'output not in memory'],
  ]),
  refuses('driver/ioctl/debug.ts configure', `${CORESIGHT}gaudi2_debug_coresight`, [
    ['EINVAL', 'unknown trace unit'],
    ['EINVAL', 'STM or BMON without parameters', `${CORESIGHT}gaudi2_config_stm, gaudi2_config_bmon`],
  ]),
  refuses('driver/ioctl/debug.ts configureSink', `${CORESIGHT}gaudi2_config_etf, gaudi2_config_etr`, [
    ['EINVAL', 'enabled without parameters'],
  ]),
  refuses('driver/ioctl/debug.ts configureSpmu', `${CORESIGHT}gaudi2_config_spmu`, [
    ['EINVAL', 'enabled without parameters'],
    ['EINVAL', 'too many event types; on gaudi also too few', 'gaudi/gaudi_coresight.c: gaudi_config_spmu'],
    ['EINVAL', 'no output on gaudi', 'gaudi/gaudi_coresight.c: gaudi_config_spmu'],
    ['EINVAL', 'output for too many counters'],
  ]),
  refuses('driver/ioctl/file.ts driverNumber', `${IOCTL}hl_ioctl_control`, [
    ['EFAULT', 'arguments not in memory', 'kernel: drm_ioctl'],
    ['ENOTTY', 'an ioctl of another driver', 'kernel: drm_ioctl'],
  ]),
  refuses('driver/ioctl/file.ts whenKnown', THROWN, [
    ['EIO', 'recorded for a call'],
    ['EIO', 'recorded for a wait'],
  ]),
  refuses('driver/ioctl/file.ts resultOrEio', THROWN, [['EIO', 'returned and logged']]),
  refuses('driver/ioctl/file.ts EmulatedFile.#ioctl', THROWN, [['EIO', 'recorded for a call']]),
  refuses('driver/ioctl/file.ts EmulatedFile.execute', `${IOCTL}hl_ioctl_control`, [
    ['EBADF', 'the file is closed', CLOSED],
    ['ENODEV', 'the card was removed'],
  ]),
  refuses('driver/ioctl/file.ts PrimaryFile.unknownErrno', 'kernel: drm_ioctl', [['EINVAL', 'a number without ioctl']]),
  refuses('driver/ioctl/file.ts PrimaryFile.#checkMmap', 'common/device.c: hl_mmap', [
    ['EBADF', 'the file is closed', CLOSED],
    ['ENODEV', 'the card was removed'],
  ]),
  refuses('driver/ioctl/file.ts ControlFile.unknownErrno', `${IOCTL}hl_ioctl_control`, [['ENOTTY', 'not INFO']]),
  ...['mmap', 'mapRegisters', 'share'].map((name) =>
    refuses(`driver/ioctl/file.ts ControlFile.${name}`, 'kernel: do_mmap', [['ENODEV', 'the file has no mmap']]),
  ),
  refuses('driver/ioctl/file.ts ControlFile.dispatch', `${IOCTL}hl_ioctl_control`, [['ENOTTY', 'not INFO']]),
  refuses('driver/ioctl/info-events.ts userMappings', `${IOCTL}user_mappings_info`, [
    ['ENOMEM', 'the buffer is too small'],
  ]),
  refuses('driver/ioctl/info-events.ts engineError', `${IOCTL}engine_err_info`, [
    ['ENOMEM', 'the buffer is too small'],
  ]),
  refuses('driver/ioctl/info-events.ts hardwareError', `${IOCTL}hw_err_info`, [['ENOMEM', 'the buffer is too small']]),
  refuses('driver/ioctl/info-events.ts firmwareError', `${IOCTL}fw_err_info`, [['ENOMEM', 'the buffer is too small']]),
  refuses('driver/ioctl/info-events.ts getEvents', `${IOCTL}events_info`, [['EINVAL', 'the buffer is too small']]),
  refuses('driver/ioctl/info-state.ts eventCounts', `${IOCTL}hw_events_info`, [
    ['EOPNOTSUPP', 'no statistics of events'],
  ]),
  refuses('driver/ioctl/info-state.ts engineStatus', `${IOCTL}engine_status_info`, [
    ['EINVAL', 'size out of bounds'],
    ['ENOMEM', 'the text does not fit'],
  ]),
  refuses('driver/ioctl/info.ts syncManager', `${IOCTL}sync_manager_info`, [['EINVAL', 'no such dcore']]),
  refuses('driver/ioctl/info.ts pllFrequency', 'common/firmware_if.c: get_used_pll_index', [['EINVAL', 'no such PLL']]),
  refuses('driver/ioctl/info.ts firmwareRequest', `${IOCTL}send_fw_generic_request`, [
    ['EINVAL', 'unknown request'],
    ['EINVAL', 'more than 1 MiB'],
    ['EOPNOTSUPP', 'any other', choice('firmware is not public: the emulated one knows none of its requests')],
  ]),
  refuses('driver/ioctl/info.ts infoIoctl', `${IOCTL}_hl_info_ioctl`, [
    ['EOPNOTSUPP', 'events on the control node', `${IOCTL}hl_info_ioctl_control`],
    ['EINVAL', 'padding'],
    ['EBUSY', OPERATIONAL],
    ['EINVAL', 'unknown op'],
    ['EINVAL', 'no buffer', `${IOCTL}razwi_info`],
    ['EFAULT', 'the buffer is not in memory', `${IOCTL}razwi_info`],
  ]),
  refuses('driver/ioctl/memory.ts memoryIoctl', `${MEMORY}hl_mem_ioctl`, [
    ['EBUSY', OPERATIONAL],
    ['EINVAL', 'unknown op'],
  ]),
  refuses('driver/ioctl/memory.ts allocate', `${MEMORY}hl_mem_ioctl`, [
    ['EINVAL', 'no bytes'],
    ['EINVAL', 'a page size that the generation does not have', `${MEMORY}set_alloc_page_size`],
  ]),
  refuses('driver/ioctl/memory.ts unmap', `${MEMORY}unmap_device_va`, [['EINVAL', 'not the start of a mapping']]),
  refuses('driver/ioctl/memory.ts exportDmabuf', `${MEMORY}hl_mem_ioctl`, [
    ['EBADF', 'the descriptor after a failure'],
  ]),
  refuses('driver/ioctl/memory.ts allocateTimestamps', `${MEMORY}allocate_timestamps_buffers`, [
    ['EINVAL', 'too many elements'],
    ['ENOMEM', 'no elements'],
  ]),
  refuses('driver/ioctl/memory.ts registerDmabuf', `${MEMORY}hl_mem_ioctl`, [['EINVAL', 'a driver without the op']]),
  refuses('driver/ioctl/submit.ts submitIoctl', `${CS}hl_cs_sanity_checks`, [['EINVAL', 'padding']]),
  refuses('driver/ioctl/submit.ts checkType', `${CS}hl_cs_sanity_checks`, [
    ['EBUSY', OPERATIONAL],
    ['EPERM', 'STAGED on a generation without it'],
    ['EINVAL', 'two types'],
    ['EINVAL', 'a type of signals on a generation without them'],
    ['EINVAL', 'no chunks'],
    ['EINVAL', 'a type of signals with another number of chunks than 1'],
  ]),
  refuses('driver/ioctl/submit.ts submitPhase', `${CS}allocate_cs`, [['EAGAIN', 'max_pending_cs are in flight']]),
  refuses('driver/ioctl/submit.ts schedule', 'common/hw_queue.c: hl_hw_queue_schedule_cs', [
    ['ENOMEM', 'more chunks on an internal queue than it has entries', 'common/hw_queue.c: int_queue_sanity_checks'],
    ['EAGAIN', 'a queue has no room', 'common/hw_queue.c: ext_queue_sanity_checks, hw_queue_sanity_checks'],
    ['EINVAL', 'ENCAP_SIGNALS without a reservation', 'common/hw_queue.c: encaps_sig_first_staged_cs_handler'],
    ['EINVAL', 'STAGED without its first member, or after its last'],
  ]),
  refuses('driver/ioctl/submit.ts restore', `${CS}hl_cs_ctx_switch`, [['ENOEXEC', 'the restore phase does not end']]),
  refuses('driver/ioctl/submit.ts copyChunks', `${CS}hl_cs_copy_chunk_array`, [
    ['EINVAL', 'too many chunks'],
    ['EFAULT', 'chunks not in memory'],
  ]),
  refuses('driver/ioctl/submit.ts invalid', `${CS}cs_ioctl_default, validate_queue_index, get_cb_from_cs_chunk`, [
    ['EINVAL', 'a bad queue or command buffer, or only internal queues'],
  ]),
  refuses('driver/ioctl/submit.ts checkChunk', 'gaudi/gaudi.c: gaudi_cs_parser', [['EINVAL', 'a disabled queue']]),
  refuses('driver/ioctl/submit.ts resolveUserBuffer', 'gaudi2/gaudi2.c: gaudi2_validate_cb_address', [
    ['EFAULT', 'a command buffer outside of the ranges of users'],
  ]),
  refuses('driver/ioctl/submit.ts runCommand', `${CS}cs_ioctl_engines, cs_ioctl_engine_cores`, [
    ['EPERM', 'a generation without engine modes'],
    ['EINVAL', 'no engines, or too many'],
    ['EINVAL', 'unknown command'],
    ['EFAULT', 'engines not in memory'],
  ]),
  refuses('driver/ioctl/submit.ts setModes', 'gaudi2/gaudi2.c: gaudi2_set_engine_modes', [
    ['EINVAL', 'an engine that cannot be stalled'],
  ]),
  refuses('driver/ioctl/wait.ts waitIoctl', `${CS}hl_wait_ioctl`, [
    ['EBUSY', 'not operational, or a reset is pending'],
  ]),
  refuses('driver/ioctl/wait.ts abortedWait', `${CS}hl_cs_wait_ioctl`, [['EIO', 'the file was closed, which aborts']]),
  refuses('driver/ioctl/wait.ts waitForOne', `${CS}hl_wait_for_fence`, [['EINVAL', 'not submitted yet']]),
  refuses('driver/ioctl/wait.ts fenceError', `${CS}hl_wait_for_fence`, [
    ['ETIMEDOUT', 'the submission timed out'],
    ['EIO', 'the submission was aborted'],
  ]),
  refuses('driver/ioctl/wait.ts waitForMultiple', `${CS}hl_multi_cs_wait_ioctl`, [
    ['EINVAL', 'padding'],
    ['EPERM', 'a generation without it'],
    ['EINVAL', 'too many submissions'],
    ['EFAULT', 'sequence numbers not in memory'],
    ['ENOMEM', 'MULTI_CS_MAX_USER_CTX waits already', `${CS}hl_wait_multi_cs_completion_init`],
    ['EINVAL', 'not submitted yet', 'common/context.c: hl_ctx_get_fences'],
  ]),
  refuses('driver/ioctl/wait.ts PolledWait.interrupted', `${CS}hl_cs_wait_ioctl`, [['EINTR', 'a signal']]),
  refuses('driver/memory/buffer-table.ts mmapError', MAPPED, [
    ['EINVAL', 'unknown handle, another length, or mapped already'],
  ]),
  refuses('driver/memory/device-memory-table.ts DeviceMemoryTable.allocate', `${MEMORY}alloc_device_memory`, [
    ['ENOMEM', 'injected', 'injected: run out of HBM'],
    ['ENOMEM', 'fewer free pages'],
    ['ENOMEM', 'CONTIGUOUS without such a run'],
  ]),
  refuses('driver/memory/device-memory-table.ts DeviceMemoryTable.free', `${MEMORY}free_device_memory`, [
    ['EINVAL', 'unknown, or still mapped'],
  ]),
  refuses('driver/memory/device-memory-table.ts DeviceMemoryTable.map', `${MEMORY}map_device_va`, [
    ['EINVAL', 'unknown handle'],
    ['ENOMEM', 'no address space left, or a forced hint that is taken'],
  ]),
  refuses('driver/memory/device-memory-table.ts DeviceMemoryTable.unmap', `${MEMORY}unmap_device_va`, [
    ['EINVAL', 'exported'],
  ]),
  refuses(
    'driver/memory/device-memory-table.ts DeviceMemoryTable.exportDmabuf',
    `${MEMORY}validate_export_params_common`,
    [
      ['EINVAL', 'not aligned; a length of more than a page only by choice (docs/HARDWARE.md)'],
      ['EINVAL', 'not the start of a mapping', `${MEMORY}memhash_node_export_get`],
      ['EINVAL', 'outside of the allocation', `${MEMORY}validate_export_params`],
    ],
  ),
  refuses(
    'driver/memory/device-memory-table.ts DeviceMemoryTable.#exportPhysical',
    `${MEMORY}validate_export_params_no_mmu`,
    [['EINVAL', 'an offset, or outside of the DRAM']],
  ),
  refuses('driver/memory/device-memory-table.ts DeviceMemoryTable.#create', 'injected: run out of descriptors', [
    ['EMFILE', 'injected'],
  ]),
  refuses('driver/memory/hw-blocks.ts HwBlocks.find', 'gaudi2/gaudi2.c: gaudi2_get_hw_block_id', [
    ['EPERM', 'gaudi', 'gaudi/gaudi.c: gaudi_get_hw_block_id'],
    ['EINVAL', 'not a block of users'],
  ]),
  refuses('driver/memory/hw-blocks.ts HwBlocks.checkMmap', 'gaudi2/gaudi2.c: gaudi2_block_mmap', [
    ['EINVAL', 'no such block'],
  ]),
  refuses('driver/memory/hw-blocks.ts HwBlocks.#block', 'gaudi2/gaudi2.c: gaudi2_block_mmap', [
    ['EINVAL', 'no such block'],
  ]),
  refuses('driver/memory/hw-blocks.ts wrongLength', 'gaudi2/gaudi2.c: gaudi2_block_mmap', [
    ['EINVAL', 'not the whole block'],
  ]),
  refuses('driver/memory/mappings.ts HostMappings.map', `${MEMORY}map_device_va`, [
    ['EINVAL', 'no bytes, or a wrap-around', `${MEMORY}hl_pin_host_memory`],
    ['EFAULT', 'not an address of users', `${MEMORY}get_user_memory`],
    ['EFAULT', 'memory that cannot be pinned', `${MEMORY}get_user_memory`],
    ['EINVAL', 'a forced hint for memory inside a page'],
    ['ENOMEM', 'no address space left, or a forced hint that is taken'],
  ]),
  refuses('driver/memory/mappings.ts DmabufImports.map', 'kernel: dma_buf_attach', [
    [
      'EINVAL',
      'no bytes, or more than the dma-buf has',
      choice('the source of the vendor op is not public; only its number is'),
    ],
    [
      'ENXIO',
      'a card without link to this one',
      choice('cards without link cannot reach each other; a working import is tested'),
    ],
    ['ENOMEM', 'no address space left', choice('as for other mappings: the source of the vendor op is not public')],
  ]),
  refuses('driver/memory/mmap-file.ts BufferPages.allocate', `${CB}hl_cb_create`, [['ENOMEM', 'no offsets left']]),
  refuses('driver/memory/pinned-memory.ts openSpace', `${MEMORY}get_user_memory`, [
    ['ENOMEM', 'this process has no descriptor left for the memory of another one'],
  ]),
  refuses('driver/submission/command-buffer-check.ts parseExternalBuffer', 'gaudi/gaudi.c: gaudi_validate_cb', [
    ['EINVAL', 'an unknown packet'],
    ['EINVAL', 'a packet over the end'],
    ['EPERM', 'a privileged packet', 'gaudi/gaudi.c: gaudi_validate_cb, gaudi_validate_load_and_exe_pkt'],
  ]),
  refuses('driver/submission/sync-stream.ts SyncStream.submitIoctl', `${CS}cs_ioctl_signal_wait`, [
    ['EFAULT', 'the chunk is not in memory', `${CS}hl_cs_copy_chunk_array`],
    ['EINVAL', 'a queue without sync stream; a collective wait without NIC ports'],
  ]),
  refuses('driver/submission/sync-stream.ts SyncStream.#signal', `${CS}allocate_cs`, [
    ['EAGAIN', 'too many in flight, or a full queue'],
    ['EINVAL', 'both sync objects are in use', `${CS}hl_cs_signal_sob_wraparound_handler`],
  ]),
  refuses('driver/submission/sync-stream.ts SyncStream.#wait', `${CS}cs_ioctl_signal_wait`, [
    ['EINVAL', 'another number of signals than 1', `${CS}cs_ioctl_extract_signal_seq`],
    ['EFAULT', 'the sequence number is not in memory', `${CS}cs_ioctl_extract_signal_seq`],
    ['EINVAL', 'not submitted yet', 'common/context.c: hl_ctx_get_fence'],
    ['EINVAL', 'not a signal'],
  ]),
  refuses('driver/submission/sync-stream.ts SyncStream.#waitReserved', `${CS}cs_ioctl_signal_wait`, [
    ['EINVAL', 'an offset outside of the reservation'],
  ]),
  refuses('driver/submission/sync-stream.ts SyncStream.#submitWait', `${CS}allocate_cs`, [
    ['EAGAIN', 'too many in flight'],
  ]),
  refuses('driver/submission/sync-stream.ts SyncStream.#reserve', `${CS}cs_ioctl_reserve_signals`, [
    ['EINVAL', 'too many signals, or a bad queue'],
    ['EINVAL', '65536 reservations', choice('a bound on memory; the driver returns EINVAL when it has no ids left')],
    ['EINVAL', 'both sync objects are in use', `${CS}hl_cs_signal_sob_wraparound_handler`],
  ]),
  refuses('driver/submission/sync-stream.ts SyncStream.#unreserve', `${CS}cs_ioctl_unreserve_signals`, [
    ['EINVAL', 'unknown'],
    ['EINVAL', 'not the last reservation'],
  ]),
  refuses('driver/submission/user-interrupts.ts UserInterrupts.waitIoctl', `${CS}hl_interrupt_wait_ioctl`, [
    ['EPERM', 'a generation without user interrupts'],
    ['EINVAL', 'unknown interrupt'],
  ]),
  refuses('driver/submission/user-interrupts.ts UserInterrupts.#wait', `${CS}_hl_interrupt_wait_ioctl`, [
    ['EFAULT', 'the counter is not in memory', `${CS}_hl_interrupt_wait_ioctl_user_addr`],
    ['EIO', 'the card fails meanwhile'],
  ]),
  refuses('driver/submission/user-interrupts.ts UserInterrupts.#register', `${CS}ts_buff_get_kernel_ts_record`, [
    [
      'EINVAL',
      'unknown buffer, or an offset outside of it',
      `${CS}_hl_interrupt_wait_ioctl, ts_buff_get_kernel_ts_record`,
    ],
    ['ENOMEM', '65536 records', choice('a bound on memory; the driver allocates records with their buffer')],
  ]),
  refuses('driver/submission/user-interrupts.ts UserInterrupts.#kernelCounter', `${CS}_hl_interrupt_wait_ioctl`, [
    ['EINVAL', 'unknown command buffer, or an offset outside of it'],
  ]),
  refuses(
    'driver/submission/user-interrupts.ts UserInterrupts.#userCounter',
    `${CS}_hl_interrupt_wait_ioctl_user_addr`,
    [['EFAULT', 'the counter is not in memory']],
  ),
];
