/**
 * The configuration of the composition root: engine, driver, and options of the emulated node.
 */

import { isAbsolute } from 'node:path';
import type { AsicName } from '../../uapi/index.ts';
import type { ConfigTable } from '../../ucs/config/config.ts';
import { type ConfigType, enumType, memoryUnitsType, orAuto, restricted, uintType } from '../../ucs/config/value.ts';

const ASICS: readonly AsicName[] = ['gaudi', 'gaudi2', 'gaudi3'];

/** Choice of the driver: by a rule, or the node server at a socket. */
export type DriverChoice = 'auto' | 'kernel' | 'emulator' | { readonly socket: string };

const SERVER_PREFIX = 'emulator:';

const driverType: ConfigType<DriverChoice> = {
  syntax: 'auto, kernel, emulator or emulator:<absolute path of the socket of a node server>',
  parse(text) {
    const trimmed = text.trim();
    const word = trimmed.toLowerCase();
    if (word === 'auto' || word === 'kernel' || word === 'emulator') return word;
    const socket = trimmed.slice(SERVER_PREFIX.length);
    return word.startsWith(SERVER_PREFIX) && isAbsolute(socket) ? { socket } : undefined;
  },
  print: (value) => (typeof value === 'string' ? value : `${SERVER_PREFIX}${value.socket}`),
};

/** Choice of the engine. */
export const ENGINE_CHOICES = ['native', 'libucx', 'auto'] as const;
export type EngineChoice = (typeof ENGINE_CHOICES)[number];

/** The values of the table. */
export interface EngineConfig {
  readonly ENGINE: EngineChoice;
}

/** `UCX_ENGINE`. */
export const ENGINE_CONFIG_TABLE: ConfigTable<EngineConfig> = {
  prefix: '',
  fields: [
    {
      name: 'ENGINE',
      type: enumType(ENGINE_CHOICES),
      default: 'native',
      doc: 'Engine that runs the operations: native, the transports of this library; libucx, the UCX library of this machine (1.13 or newer), with the transports of this library for device memory; auto: libucx if it is installed, else native.',
    },
  ],
};

/** The values of the table. */
export interface GaudiConfig {
  readonly DRIVER: DriverChoice;
  readonly EMULATOR_ASIC: AsicName;
  readonly EMULATOR_CARDS: number;
  readonly EMULATOR_NICS: number;
  readonly EMULATOR_HBM: number | 'auto';
  readonly EMULATOR_DMA_THREADS: number | 'auto';
}

/** `UCX_GAUDI_*`. */
export const GAUDI_CONFIG_TABLE: ConfigTable<GaudiConfig> = {
  prefix: 'GAUDI_',
  fields: [
    {
      name: 'DRIVER',
      type: driverType,
      default: 'auto',
      doc: 'kernel: the habanalabs driver of this machine; emulator: emulated cards in this process; emulator:<socket>: those of a node server; auto: kernel if it has cards, else the node server at its default socket if one runs, else emulator.',
    },
    {
      name: 'EMULATOR_ASIC',
      type: enumType(ASICS),
      default: 'gaudi2',
      doc: 'Generation of the emulated cards.',
    },
    {
      name: 'EMULATOR_CARDS',
      type: restricted(uintType, 'an unsigned integer, 1 to 8', (cards) => cards >= 1 && cards <= 8),
      default: '8',
      doc: 'Number of emulated cards, 1 to 8.',
    },
    {
      name: 'EMULATOR_NICS',
      type: restricted(uintType, 'an unsigned integer, 0 to 8', (nics) => nics <= 8),
      default: '0',
      doc: 'Number of RDMA devices of the emulated node that this process starts, 0 to 8: hca0, hca1 and so on. They reach those of other processes of this user, and the memory of the cards of the node. A node server gives as many to each client: node up --nics, or this variable of the server.',
    },
    {
      name: 'EMULATOR_HBM',
      type: memoryUnitsType,
      default: 'auto',
      doc: 'HBM of an emulated card; auto is the size of the real card. Sparse: only used pages occupy memory.',
    },
    {
      name: 'EMULATOR_DMA_THREADS',
      type: orAuto(restricted(uintType, 'an unsigned integer, 0 to 8', (threads) => threads <= 8)),
      default: 'auto',
      doc: 'Threads that run the emulated DMA engines, 0 to 8; 0 runs them inside the calls. auto: 1, but 0 for cards in this process if it has fewer than three processors, because programs that poll would starve the thread, and in a bundle without the module of the thread.',
    },
  ],
};
