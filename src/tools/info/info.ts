/** Data and text of `gaudi-ucx info`. */

import { components } from '../../assembly/context.ts';
import { findUcxLibrary, type UcxLibrary } from '../../assembly/engine.ts';
import { cardsOf, openShownNode } from '../../assembly/open-node.ts';
import { type Program, startProgram } from '../../assembly/program/program.ts';
import { readTopology, type Topology } from '../../assembly/topology.ts';
import type { DriverNode } from '../../driver/port.ts';
import { UCP_CONFIG_TABLE } from '../../ucp/resources/config.ts';
import { type NamedTransport, ResourceFilter } from '../../ucp/resources/resource-filter.ts';
import { type ConfigPrintOptions, printConfig } from '../../ucs/config/print.ts';
import { packageVersion } from '../../ucs/sys/package.ts';
import { addressOfPath, printPciAddress } from '../../ucs/sys/topology.ts';
import { invalidParam, isUcxError } from '../../ucs/type/error.ts';
import type { IfaceResource } from '../../uct/api/iface.ts';
import type { Component } from '../../uct/api/memory-domain.ts';
import { type DomainReport, domainText } from './devices.ts';
import { distanceLines, networkLines, readSystem, type SystemReport, systemText } from './system.ts';
import { ucxVariablesText } from './ucp.ts';

/** The requested sections. */
export interface InfoOptions {
  readonly version: boolean;
  readonly system: boolean;
  /** Only the distances of the system. */
  readonly topology: boolean;
  readonly devices: boolean;
  /** Only this transport. */
  readonly transport: string | undefined;
  /** Undefined for no configuration. */
  readonly config: ConfigPrintOptions | undefined;
}

/** The data; sections that were not requested are undefined. */
export interface InfoReport {
  readonly version: string | undefined;
  /** UCX library of the machine: version and file, or the reason why there is none. */
  readonly library: UcxLibrary | undefined;
  readonly system: SystemReport | undefined;
  readonly devices: readonly DomainReport[] | undefined;
  /** The variables and their values. */
  readonly config: Readonly<Record<string, string>> | undefined;
}

/** Reads the requested sections. Returns them as data, and as text in the order version, system, devices, configuration. */
export function readInfo(options: InfoOptions): { readonly report: InfoReport; readonly text: string } {
  const program = startProgram();
  const library = options.version || options.devices ? findUcxLibrary(program) : undefined;
  const { system, devices, hasScaleOut } = readMachine(program, options);
  const { entries, unused } = program.config;
  const report: InfoReport = {
    version: options.version ? packageVersion() : undefined,
    library,
    system,
    devices,
    config: options.config && Object.fromEntries(entries.map(({ name, text }) => [name, text])),
  };
  const parts = [
    ...(report.version === undefined || library === undefined
      ? []
      : [`# Library version: ${report.version}`, describeLibraryVersion(library)]),
    ...(system !== undefined && options.system ? [systemText(system, hasScaleOut)] : []),
    ...(system !== undefined && options.topology ? [...distanceLines(system), ...networkLines(system)] : []),
    ...(devices ?? []).map(domainText),
    ...(devices === undefined || library === undefined || options.transport !== undefined
      ? []
      : [describeLibrary(library)]),
    ...(options.config === undefined ? [] : [printConfig(entries, options.config).trimEnd()]),
    ...(options.config?.hidden === true ? [ucxVariablesText(unused, options.config.filter)] : []),
  ];
  return { report, text: parts.join('\n') };
}

function readMachine(
  program: Program,
  options: InfoOptions,
): Pick<InfoReport, 'system' | 'devices'> & { readonly hasScaleOut: boolean } {
  const wantsSystem = options.system || options.topology;
  if (!wantsSystem && !options.devices) return { system: undefined, devices: undefined, hasScaleOut: false };
  const node = openShownNode(program);
  try {
    const cards = cardsOf(node, program);
    const topology = wantsSystem ? readTopology({ node, config: program.config, cards }) : undefined;
    return {
      system: topology && readSystem({ node, topology, cards }),
      devices: options.devices ? readDevices(program, node, options.transport) : undefined,
      hasScaleOut: topology !== undefined && topology.scaleOut !== 'no',
    };
  } finally {
    node.close();
  }
}

function readDevices(program: Program, node: DriverNode, transport: string | undefined): DomainReport[] {
  const filter = new ResourceFilter(program.config.get(UCP_CONFIG_TABLE));
  const placeOf = placesIn(readTopology({ node, config: program.config, cards: cardsOf(node, program) }));
  // Without RDMA devices, the list has their transports with a reason only if it was requested for one transport.
  const all = components(node, program, transport !== undefined);
  return chosenComponents(all, transport).map(({ component, names }): DomainReport => {
    try {
      const md = component.openMd({ ...program, log: program.log.child(component.name) });
      try {
        const resources = md.resources.filter(({ transport: name }) => names.includes(name));
        const devices = resources.map((resource) => {
          const iface = md.openIface(resource);
          const { attributes } = iface;
          iface.close();
          return { attributes, exclusion: filter.exclusionOf(resource), place: placeOf(resource) };
        });
        return { component: component.name, md: md.attributes, devices, leftOut: md.leftOut ?? [] };
      } finally {
        md.close();
      }
    } catch (error) {
      if (!isUcxError(error)) throw error;
      return { component: component.name, reason: error.message };
    }
  });
}

/** A component, and the names of its transports that are shown. */
interface ChosenComponent {
  readonly component: Component;
  readonly names: readonly string[];
}

/**
 * The components with a transport of this name, alias or memory domain; all if undefined.
 * @throws UcxError ERR_INVALID_PARAM
 */
function chosenComponents(all: readonly Component[], wanted: string | undefined): ChosenComponent[] {
  const chosen = all.map((component): ChosenComponent => {
    const isMeant = ({ name, aliases }: NamedTransport): boolean =>
      wanted === undefined || [component.name, name, ...aliases].includes(wanted);
    return { component, names: component.transports.filter(isMeant).map(({ name }) => name) };
  });
  const found = chosen.filter(({ names }) => names.length > 0);
  if (found.length > 0) return found;
  const known = all.flatMap(({ transports }) => transports.map(({ name }) => name));
  throw invalidParam('-t', `must be one of ${known.join(', ')}; ucx_info lists those of the UCX library`, wanted);
}

/** Finds the PCI address of the device of a resource: a card, a network device, or its port. */
function placesIn({ cards, networks }: Topology): (resource: IfaceResource) => string | undefined {
  return ({ device, sysDevice }) => {
    if (sysDevice !== undefined) return cards.find(({ index }) => index === sysDevice)?.entry.busId;
    const pciPath = networks.find(({ name }) => name === device || name === device.replace(/:\d+$/, ''))?.pciPath;
    return pciPath === undefined ? undefined : printPciAddress(addressOfPath(pciPath));
  };
}

/** The line for `info -v`. */
function describeLibraryVersion(library: UcxLibrary): string {
  if (library.reason !== undefined) return `# UCX library: none: ${library.reason}`;
  return `# UCX library: ${library.version} (${library.file})`;
}

/** The text for `info -d`: transports and devices of libucp, or one line with the reason why there are none. */
function describeLibrary(library: UcxLibrary): string {
  const title = describeLibraryVersion(library);
  if (library.reason !== undefined) return ['#', title, '#'].join('\n');
  return ['#', title, '#   transports for the engine libucx (UCX_ENGINE)', contentOf(library)].join('\n');
}

function contentOf(library: UcxLibrary & { readonly describe: () => string }): string {
  try {
    return library.describe().trimEnd();
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return `#   < none: ${error.message} >\n#`;
  }
}
