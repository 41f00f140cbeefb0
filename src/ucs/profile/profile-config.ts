/** Configuration fields of the profile. */

import type { ConfigTable } from '../config/config.ts';
import { listType } from '../config/list.ts';
import { enumType, memorySizeType, stringType } from '../config/value.ts';
import { FILE_NAME_SYNTAX } from '../sys/file-name.ts';

/** `log` records every event, `accum` only sums. */
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
      doc: 'log: records every request, command submission and DMA transfer of the process, with process and thread ids, on one timeline per thread and card; accum: records their total number, time and bytes. Empty: records nothing.',
    },
    {
      name: 'PROFILE_FILE',
      type: stringType,
      default: 'ucx_%h_%p.prof',
      doc: `File of the profile, in the Chrome trace format (JSON), for Perfetto, chrome://tracing and gaudi-ucx profile; ucx_read_profile cannot read it. Substitutions in the file name: ${FILE_NAME_SYNTAX}.`,
    },
    {
      name: 'PROFILE_LOG_SIZE',
      type: memorySizeType,
      default: '4m',
      doc: 'Memory for the events of mode log; when it is full, new events replace the oldest.',
    },
  ],
};
