/** What emulated cards refuse, drop or stop at, in the order of the files and functions. refusals.test.ts compares the table with the source. */

import { choice, type Refusing, refuses } from './source.ts';

const SECURITY = "vendor's driver: gaudi3/gaudi3_security.c: gaudi3_init_security";
const PQM_STATUS = "vendor's specification: specs_h9/gaudi3/asic_reg_structs/pqm_ch_a_regs.h: error status";
const PAGE_FAULT = 'gaudi2/gaudi2.c: gaudi2_handle_page_error';
const SEI = "vendor's driver: gaudi3/gaudi3.c: gaudi3_handle_eqe";
const SAME_STOP = choice('passes a refusal on that another row has');
const UNDEFINED = 'gaudi2/gaudi2.c: handle_lower_qman_data_on_err, gaudi2_handle_qman_err_generic';

export const DEVICE_REFUSALS: readonly Refusing[] = [
  refuses('device/channel/channel-engine.ts ChannelEngine.#step', PQM_STATUS, [
    ['failed', 'an invalid ring, or a producer index that goes backwards (pointer overflow)'],
    ['failed', 'the ring has no translation (CQ read)'],
    ['failed', 'an undefined command'],
  ]),
  refuses('device/channel/channel-engine.ts ChannelEngine.#faultAt', PQM_STATUS, [
    ['failed', 'a packet continues at an address without translation (CQ read)'],
  ]),
  refuses('device/channel/channel-engine.ts ChannelEngine.#fail', SEI, [
    ['stopped', 'stop-on-error: any error of a channel'],
    ['engineError', 'the driver is notified when the channel moves no more data'],
  ]),
  refuses('device/channel/channel-engine.ts ChannelEngine.#writeAddress', SECURITY, [
    ['razwi', 'a message to a register that users may not write, or to memory'],
  ]),
  refuses('device/channel/channel-engine.ts stopping', SEI, [['stopped', 'stop-on-error: a fault of a channel']]),
  refuses('device/channel/channel-engine.ts stopping.pageFault', SAME_STOP, [['pageFault', 'of a channel']]),
  refuses('device/channel/channel-engine.ts stopping.razwi', SAME_STOP, [['razwi', 'of a channel']]),
  refuses('device/channel/channel-engine.ts stopping.undefinedOpcode', SAME_STOP, [
    ['undefinedOpcode', 'of a channel'],
  ]),
  refuses('device/channel/channel-engine.ts stopping.engineError', SAME_STOP, [['engineError', 'of a channel']]),
  refuses('device/channel/pdma-channel.ts PdmaChannel.halt', "vendor's driver: gaudi3/gaudi3.c: gaudi3_halt_pdma", [
    ['stopped', 'a reset'],
  ]),
  refuses('device/channel/pqm-executor.ts PqmExecutor.execute', PQM_STATUS, [
    ['failed', 'STOP, or a packet whose layout is not public (an undefined command)'],
  ]),
  refuses('device/channel/pqm-executor.ts PqmExecutor.writeBulk', PQM_STATUS, [['failed', 'a bad register write']]),
  refuses('device/channel/pqm-executor.ts PqmExecutor.#linPdma', PQM_STATUS, [
    [
      'failed',
      'no commit bit, or two write completions',
      choice('no public source says what they do; the vendor never sends them'),
    ],
    [
      'failed',
      'bits for further completions, and for addresses in registers',
      choice('no public source says how they work; ignoring them would move other bytes'),
    ],
    ['failed', 'a fault of the transfer', SEI],
    ['failed', 'a write completion to a register that users may not write', SECURITY],
  ]),
  refuses('device/channel/pqm-executor.ts PqmExecutor.#count', SEI, [
    ['failed', 'a counter without translation'],
    ['failed', 'a message of a completion to a register that users may not write', SECURITY],
  ]),
  refuses('device/channel/pqm-executor.ts PqmExecutor.#message', SECURITY, [
    ['failed', 'a message to a register that users may not write, or to memory'],
  ]),
  refuses('device/channel/pqm-executor.ts PqmExecutor.#messageShort', PQM_STATUS, [
    ['failed', 'a double message', choice('no public source says what its second word is; the vendor never sends it')],
  ]),
  refuses('device/channel/pqm-executor.ts PqmExecutor.#writeOwn', PQM_STATUS, [['failed', 'a bad register write']]),
  refuses('device/channel/pqm-executor.ts fenceOutcome', PQM_STATUS, [['failed', 'a fence underflow']]),
  refuses('device/command/command-processor.ts CommandProcessor.#run', PAGE_FAULT, [
    ['stopped', 'a command buffer without translation'],
    ['stopped', 'a packet that continues at an address without translation'],
    ['undefinedOpcode', 'an unknown opcode, or a packet over the end of its buffer', UNDEFINED],
  ]),
  refuses('device/command/packet-executor.ts PacketExecutor.execute', UNDEFINED, [
    [
      'undefinedOpcode',
      'a packet that is not emulated',
      choice('the packets that docs/HARDWARE.md lists stop a queue visibly'),
    ],
  ]),
  refuses('device/command/packet-executor.ts PacketExecutor.undefinedOpcode', UNDEFINED, [
    ['stopped', 'the queue of an undefined opcode'],
    ['undefinedOpcode', 'notified and recorded'],
  ]),
  refuses('device/command/packet-executor.ts PacketExecutor.#messageLong', PAGE_FAULT, [
    ['pageFault', 'an address without translation'],
  ]),
  refuses('device/command/packet-executor.ts PacketExecutor.#writeOwn', UNDEFINED, [
    [
      'undefinedOpcode',
      'a transfer of a DMA core that is not emulated',
      choice('docs/HARDWARE.md lists what DMA cores leave out'),
    ],
  ]),
  refuses('device/command/packet-executor.ts PacketExecutor.#fetchBuffer', UNDEFINED, [
    [
      'undefinedOpcode',
      'CP_DMA in the lower command processor',
      choice('the lower one has no other below it (CP_DMA feeds it)'),
    ],
  ]),
  refuses('device/command/packet-executor.ts PacketExecutor.#bufferList', 'include/gaudi/gaudi_packets.h: packet_id', [
    ['undefinedOpcode', 'CB_LIST on gaudi, which does not have the packet'],
    [
      'undefinedOpcode',
      'an entry that is not CP_DMA',
      choice('the tests of hl-thunk define entries as CP_DMA packets'),
    ],
  ]),
  refuses('device/command/packet-executor.ts PacketExecutor.#executeScalar', UNDEFINED, [
    [
      'undefinedOpcode',
      'a packet that does not fit into scalars',
      choice('four scalars have 16 bytes, and cannot nest or repeat'),
    ],
  ]),
  refuses(
    'device/engine/engine-program.ts EngineProgram.#execute',
    choice('a corrupt ring of this process, or an injected failure'),
    [['EIO', 'an unknown descriptor']],
  ),
  refuses('device/queue/engine-access.ts EngineAccess.#decode', PAGE_FAULT, [
    ['pageFault', 'an address without translation'],
    [
      'razwi',
      'data from or to registers',
      choice('engines of users need rights or CH_LBW that no public test sets; nothing moves'),
    ],
  ]),
  refuses('device/queue/engine-access.ts EngineReader.read', PAGE_FAULT, [
    ['stopped', 'predicates, scalars or tables without translation'],
  ]),
];

/** Accesses that have no effect and are not reported, by their functions. */
export const DROPS: readonly (readonly [place: string, what: string, source: string])[] = [
  [
    'device/gaudi-device.ts GaudiDevice.writeWord',
    'messages of monitors and completions to addresses without memory',
    choice('writes on the bus are posted, and no public source says what monitors report'),
  ],
  [
    'device/memory/memory-access.ts copyBytes',
    'bytes of another process that has ended or has unmapped them',
    choice('pinned pages would stay; the card continues without an error'),
  ],
  [
    'device/register-file.ts RegisterFile.writeRegister',
    'values of registers without behaviour, above a number of them',
    choice('a bound on memory; such registers keep a value and do nothing else'),
  ],
];
