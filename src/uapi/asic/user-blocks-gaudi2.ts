/**
 * The register blocks of gaudi2 that users can map by MEMORY MAP_BLOCK, and their registers that public headers name.
 *
 * Blocks and sizes: gaudi2_user_mapped_blocks_init, drivers/accel/habanalabs/gaudi2/gaudi2.c, Linux 6.12. Addresses:
 * include/gaudi2/asic_reg/gaudi2_blocks_linux_driver.h; registers: the *_regs.h files next to it. The memory of an ARC (DCCM) begins 0x8000 bytes
 * before the registers of the ARC (QM_ARC_AUX); this does not hold for the ARCs of the farm.
 */

import type { BlockRegister, UserBlock } from './asic-profile.ts';
import { registerArray, userBlocksAt } from './user-blocks.ts';

/** Base of the configuration space of gaudi2. */
export const GAUDI2_CFG_BASE = 0x1000007ff8000000n;
/** Distance of the registers of one dcore to those of the next one. */
export const GAUDI2_DCORE_STRIDE = 0x200000;

const DCORES = [0, 1, 2, 3];
const BLOCK_BYTES = 0x1000; // HL_BLOCK_SIZE
const DCCM_BYTES = 0x8000; // ARC_DCCM_BLOCK_SIZE
/** From SOB_OBJ_0 to SM_SEC_0, as defined in gaudi2P.h. */
const SM_OBJS_BYTES = 0x14000;
const NIC_MACROS = 12;
const PORTS_PER_MACRO = 2;
const NIC_STRIDE = 0x80000; // NIC_OFFSET
const NIC_PORT_STRIDE = 0x20000; // NIC_QM_OFFSET
const UMR_BLOCKS_PER_PORT = 15; // NUM_OF_USER_NIC_UMR_BLOCKS
const UMR_STRIDE = 0x1000; // NIC_UMR_OFFSET
const ARC_FARM_STRIDE = 0x20000;
const ENGINE_STRIDE = 0x10000;

const DCORE0_TPC0_QM_DCCM = 0x4000000;
const DCORE0_MME_QM_ARC_DCCM = 0x40c0000;
const DCORE0_MME_QM_ARC_ACP_ENG = 0x40cf000;
const DCORE0_SYNC_MNGR_OBJS = 0x4100000;
const DCORE0_SYNC_MNGR_GLBL = 0x411e000;
const DCORE0_EDMA0_QM_DCCM = 0x41c0000;
const DCORE0_DEC0_CMD = 0x41e0000;
const PDMA0_QM_ARC_DCCM = 0x4c80000;
const ROT0_QM_ARC_DCCM = 0x4e00000;
const ARC_FARM_ARC0_ACP_ENG = 0x4e8f000;
const ARC_FARM_ARC0_DCCM0 = 0x4e90000;
const PCIE_DEC0_CMD = 0x4f00000;
const NIC0_UMR0_0 = 0x5400000;
const NIC0_QM_DCCM0 = 0x5410000;

const syncObjects = (): BlockRegister[] => [
  ...registerArray('SOB_OBJ', 0, 8192),
  ...registerArray('MON_PAY_ADDRL', 0x8000, 2048),
  ...registerArray('MON_PAY_ADDRH', 0xa000, 2048),
  ...registerArray('MON_PAY_DATA', 0xc000, 2048),
  ...registerArray('MON_ARM', 0xe000, 2048),
  ...registerArray('MON_CONFIG', 0x10000, 2048),
  ...registerArray('MON_STATUS', 0x12000, 2048),
];
const completionQueues = (): BlockRegister[] => [
  ...registerArray('CQ_BASE_ADDR_L', 0x50, 64),
  ...registerArray('CQ_BASE_ADDR_H', 0x150, 64),
  ...registerArray('CQ_SIZE_LOG2', 0x250, 64),
  ...registerArray('CQ_PI', 0x350, 64),
  ...registerArray('LBW_ADDR_L', 0x550, 64),
  ...registerArray('LBW_ADDR_H', 0x650, 64),
  ...registerArray('LBW_DATA', 0x750, 64),
  ...registerArray('CQ_INC_MODE', 0x850, 64),
];
/** Two doorbells of four words, then two completion queues. */
const umr = (): BlockRegister[] => [
  ...[0, 1].flatMap((half) =>
    ['FIRST32', 'SECOND32', 'THIRD32', 'FOURTH32'].map((word, index) => ({
      name: `UNSECURE_DOORBELL${half}_UNSECURE_DB_${word}`,
      offset: half * 0x80 + index * 4,
    })),
  ),
  ...[0, 1].flatMap((half) => [
    { name: `COMPLETION_QUEUE_CI_${half}_CQ_NUMBER`, offset: 0x100 + half * 0x80 },
    { name: `COMPLETION_QUEUE_CI_${half}_CQ_CONSUMER_INDEX`, offset: 0x104 + half * 0x80 },
  ]),
];
const decoder = (): BlockRegister[] =>
  [...registerArray('SWREG', 0, 27), ...registerArray('SWREG', 0x100, 4, 64)].map((register) => ({
    ...register,
    name: register.name.replace('_', ''),
  }));
const acpEngine = (): BlockRegister[] => [
  ...registerArray('ACP_DBG_PRIO_OUT_CNT', 0x41c, 4),
  ...registerArray('ACP_DBG_PRIO_RD_CNT', 0x42c, 4),
  { name: 'ACP_DBG_REG', offset: 0x43c },
];
/** Closely coupled memory of an ARC: data, no registers. */
const memory = (): BlockRegister[] => [];

const block = userBlocksAt(GAUDI2_CFG_BASE);

/** The memories of the ARCs: two banks for each of the four schedulers, one for each QMAN. */
function memoriesOfArcs(): UserBlock[] {
  const dccm = (name: string, offset: number): UserBlock => block(name, offset, DCCM_BYTES, memory);
  const schedulers = [0, 1, 2, 3].map((arc) =>
    block(`ARC_FARM_ARC${arc}_DCCM`, ARC_FARM_ARC0_DCCM0 + arc * ARC_FARM_STRIDE, 2 * DCCM_BYTES, memory),
  );
  const dcores = DCORES.flatMap((dcore) => {
    const shift = dcore * GAUDI2_DCORE_STRIDE;
    // The seventh TPC of dcore 0 is next to PCIe.
    const tpcs = Array.from({ length: dcore === 0 ? 7 : 6 }, (_, tpc) =>
      dccm(`DCORE${dcore}_TPC${tpc}_QM_DCCM`, DCORE0_TPC0_QM_DCCM + tpc * ENGINE_STRIDE + shift),
    );
    return [
      ...tpcs,
      dccm(`DCORE${dcore}_MME_QM_ARC_DCCM`, DCORE0_MME_QM_ARC_DCCM + shift),
      ...[0, 1].map((edma) =>
        dccm(`DCORE${dcore}_EDMA${edma}_QM_DCCM`, DCORE0_EDMA0_QM_DCCM + edma * ENGINE_STRIDE + shift),
      ),
    ];
  });
  const pair = [0, 1];
  return [
    ...schedulers,
    ...dcores,
    ...pair.map((index) => dccm(`PDMA${index}_QM_ARC_DCCM`, PDMA0_QM_ARC_DCCM + index * ENGINE_STRIDE)),
    ...pair.map((index) => dccm(`ROT${index}_QM_ARC_DCCM`, ROT0_QM_ARC_DCCM + index * ENGINE_STRIDE)),
    ...portsOfNics().map(({ nic, port, shift }) => dccm(`NIC${nic}_QM_DCCM${port}`, NIC0_QM_DCCM0 + shift)),
  ];
}

function portsOfNics(): { readonly nic: number; readonly port: number; readonly shift: number }[] {
  return Array.from({ length: NIC_MACROS * PORTS_PER_MACRO }, (_, index) => {
    const nic = Math.floor(index / PORTS_PER_MACRO);
    const port = index % PORTS_PER_MACRO;
    return { nic, port, shift: nic * NIC_STRIDE + port * NIC_PORT_STRIDE };
  });
}

function schedulerEngines(): UserBlock[] {
  return [
    ...[0, 1, 2, 3].map((arc) =>
      block(`ARC_FARM_ARC${arc}_ACP_ENG`, ARC_FARM_ARC0_ACP_ENG + arc * ARC_FARM_STRIDE, BLOCK_BYTES, acpEngine),
    ),
    ...DCORES.map((dcore) =>
      block(
        `DCORE${dcore}_MME_QM_ARC_ACP_ENG`,
        DCORE0_MME_QM_ARC_ACP_ENG + dcore * GAUDI2_DCORE_STRIDE,
        BLOCK_BYTES,
        acpEngine,
      ),
    ),
  ];
}

/** Blocks that a process writes to use a NIC port: doorbells and consumer indices. */
function nicDoorbells(): UserBlock[] {
  return portsOfNics().flatMap(({ nic, port, shift }) =>
    Array.from({ length: UMR_BLOCKS_PER_PORT }, (_, index) =>
      block(`NIC${nic}_UMR${port}_${index}`, NIC0_UMR0_0 + shift + index * UMR_STRIDE, BLOCK_BYTES, umr),
    ),
  );
}

function decoders(): UserBlock[] {
  const pair = [0, 1];
  return [
    ...DCORES.flatMap((dcore) =>
      pair.map((index) =>
        block(
          `DCORE${dcore}_DEC${index}_CMD`,
          DCORE0_DEC0_CMD + dcore * GAUDI2_DCORE_STRIDE + index * ENGINE_STRIDE,
          BLOCK_BYTES,
          decoder,
        ),
      ),
    ),
    ...pair.map((index) => block(`PCIE_DEC${index}_CMD`, PCIE_DEC0_CMD + index * ENGINE_STRIDE, BLOCK_BYTES, decoder)),
  ];
}

/** The driver does not let users map the sync manager of dcore 0. */
function syncManagers(): UserBlock[] {
  return [1, 2, 3].flatMap((dcore) => {
    const shift = dcore * GAUDI2_DCORE_STRIDE;
    return [
      block(`DCORE${dcore}_SYNC_MNGR_OBJS`, DCORE0_SYNC_MNGR_OBJS + shift, SM_OBJS_BYTES, syncObjects),
      block(`DCORE${dcore}_SYNC_MNGR_GLBL`, DCORE0_SYNC_MNGR_GLBL + shift, BLOCK_BYTES, completionQueues),
    ];
  });
}

/** All of them, in the order of the driver's families. */
export const GAUDI2_USER_BLOCKS: readonly UserBlock[] = [
  ...memoriesOfArcs(),
  ...schedulerEngines(),
  ...nicDoorbells(),
  ...decoders(),
  ...syncManagers(),
];
