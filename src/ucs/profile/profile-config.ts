/** The fields of the profile: mode, size and file. */

import type { ConfigTable } from '../config/config.ts';
import { listType } from '../config/list.ts';
import { enumType, memorySizeType, stringType } from '../config/value.ts';
import { FILE_NAME_SYNTAX } from '../sys/file-name.ts';

/** Records every event, or sums. */
export type ProfileMode = 'log' | 'accum';

/** The values of {@link PROFILE_CONFIG_TABLE}. */
export interface ProfileConfig {
  readonly PROFILE_MODE: readonly ProfileMode[];
  readonly PROFILE_FILE: string;
  /** Bytes. */
  readonly PROFILE_LOG_SIZE: number;
}

/** `UCX_PROFILE_*`. */
export const PROFILE_CONFIG_TABLE: ConfigTable<ProfileConfig> = {
  prefix: '',
  fields: [
    {
      name: 'PROFILE_MODE',
      type: listType(enumType(['log', 'accum'])),
      default: '',
      doc: 'log: records every request, command submission and DMA transfer of the process, with the ids of process and thread, on a timeline for each thread and card; accum: records their total number, time and bytes. Empty: records nothing.',
    },
    {
      name: 'PROFILE_FILE',
      type: stringType,
      default: 'ucx_%h_%p.prof',
      doc: `File of the profile, in the JSON of Chrome traces, which Perfetto, chrome://tracing and gaudi-ucx profile show, and ucx_read_profile does not. Substitutions in its name: ${FILE_NAME_SYNTAX}.`,
    },
    {
      name: 'PROFILE_LOG_SIZE',
      type: memorySizeType,
      default: '4m',
      doc: 'Memory for the events of mode log; when it is full, new events replace the oldest.',
    },
  ],
};
