/** The loopback component: one memory domain with one transport, available on every machine. */

import type { Component } from '../api/memory-domain.ts';
import { checkServices } from '../base/check-services.ts';
import { SelfMd } from './self-md.ts';
import { SELF_MD_NAME } from './self-memory.ts';
import { SELF_RESOURCE } from './self-resource.ts';

/** The component `self`. */
export function selfComponent(): Component {
  return {
    name: SELF_MD_NAME,
    transports: [{ name: SELF_RESOURCE.transport, aliases: SELF_RESOURCE.aliases }],
    configTable: undefined,
    openMd: (services) => {
      checkServices(services);
      return new SelfMd(services);
    },
  };
}
