/**
 * Parsing of faults from untrusted data, such as a message of another process: checks every field. When faults take effect is decided in fault-plan.ts.
 */

import { HL_DEVICE_STATUS } from '../../uapi/index.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import type { Fault } from './fault-plan.ts';

type Fields = Readonly<Record<string, unknown>>;

const IOCTLS = ['INFO', 'CB', 'CS', 'WAIT_CS', 'MEMORY', 'DEBUG'] as const;
const RESOURCES = ['hbm', 'va', 'fd'] as const;
/** Faults without parameters. */
const PLAIN = ['engine-failure', 'hard-reset', 'unplug', 'malfunction', 'recover'] as const;
const STATUS_RULE: string = `must be one of ${Object.keys(HL_DEVICE_STATUS).join(', ')}`;
/** Names of all faults. */
export const FAULT_KINDS: readonly string[] = [
  'ioctl',
  'open',
  'completion',
  'hang',
  'exhausted',
  'status',
  'link-down',
  'link-up',
  ...PLAIN,
];
/** Maximum delay, within the range of a timer: a day. */
const DELAY_NS_MAX = 86_400e9;
const ERRNO_MAX = 4095;
/** Port masks have 64 bits. */
const PORT_MAX = 63;
const MINOR_MAX = 255;

/**
 * Parses a fault.
 * @throws UcxError ERR_INVALID_PARAM that names the field
 */
export function readFault(value: unknown): Fault {
  if (typeof value !== 'object' || value === null) throw invalidParam('fault', 'must be an object', value);
  const fields = value as Fields;
  const fault = faultOf(fields);
  const given = Object.keys(fields).filter((name) => fields[name] !== undefined);
  const unknown = given.find((name) => !(name in fault));
  if (unknown !== undefined) throw invalidParam('fault', `of kind ${fault.kind} has no ${unknown}`, unknown);
  return fault;
}

function faultOf(fields: Fields): Fault {
  const kind = oneOf(fields, 'kind', FAULT_KINDS);
  const nth = optionalInteger(fields, 'nth', 1, Number.MAX_SAFE_INTEGER);
  switch (kind) {
    case 'ioctl':
      return { kind, ioctl: oneOf(fields, 'ioctl', IOCTLS), errno: integer(fields, 'errno', 1, ERRNO_MAX), ...nth };
    case 'open':
      return { kind, errno: integer(fields, 'errno', 1, ERRNO_MAX), ...nth };
    case 'completion':
    case 'hang':
      return { kind, ...nth, ...optionalInteger(fields, 'delayNs', 0, DELAY_NS_MAX) };
    case 'exhausted':
      return { kind, resource: oneOf(fields, 'resource', RESOURCES), ...nth };
    case 'status': {
      const status = Object.values(HL_DEVICE_STATUS).find((known) => known === fields['status']);
      if (status === undefined) throw invalidParam('status', STATUS_RULE, fields['status']);
      return { kind, status };
    }
    case 'link-down':
    case 'link-up':
      return {
        kind,
        ...optionalInteger(fields, 'port', 0, PORT_MAX),
        ...optionalInteger(fields, 'peer', 0, MINOR_MAX),
      };
    default:
      return { kind: oneOf(fields, 'kind', PLAIN) };
  }
}

function oneOf<T extends string>(fields: Fields, name: string, values: readonly T[]): T {
  const found = values.find((value) => value === fields[name]);
  if (found === undefined) throw invalidParam(name, `must be one of ${values.join(', ')}`, fields[name]);
  return found;
}

function integer(fields: Fields, name: string, min: number, max: number): number {
  const value = fields[name];
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < min || value > max) {
    throw invalidParam(name, `must be an integer from ${min} to ${max}`, value);
  }
  return value;
}

function optionalInteger<N extends string>(fields: Fields, name: N, min: number, max: number): { [K in N]?: number } {
  if (fields[name] === undefined) return {};
  return { [name]: integer(fields, name, min, max) } as { [K in N]?: number };
}
