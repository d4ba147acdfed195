// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sample

import (
	"strconv"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// Kind says what sort of thing a subject is.
type Kind uint8

// The kinds. The zero value is no kind.
const (
	// Node is the whole machine; its ID is empty.
	Node Kind = iota + 1
	// System is the node minus all pods minus all host applications; its ID is empty.
	System
	// Class is the sum of the pods of one QoS class (ID "BE") or of one priority class (ID "koord-batch").
	Class
	// NUMA is one memory node of the machine, SystemNUMA the system's part of it; the ID is its number.
	NUMA
	SystemNUMA
	// HostApp is a host application of the NodeSLO; the ID is its name.
	HostApp
	// Pod by UID, Container by the runtime's id.
	Pod
	Container
	// LLC is one last-level cache domain as one resctrl group sees it; the ID is "group/domain".
	LLC
	// Disk is a block device; the ID is "major:minor".
	Disk

	numKinds = iota + 1
)

var kinds = [numKinds]struct{ name, prefix string }{
	Node:       {"node", "node"},
	System:     {"system", "sys"},
	Class:      {"class", "node_class"},
	NUMA:       {"numa", "node_numa"},
	SystemNUMA: {"system-numa", "sys_numa"},
	HostApp:    {"hostapp", "host_application"},
	Pod:        {"pod", "pod"},
	Container:  {"container", "container"},
	LLC:        {"llc", "resctrl_resource"},
	Disk:       {"disk", "node_disk"},
}

// String is a lower-case word for people.
func (k Kind) String() string {
	if k == 0 || k >= numKinds {
		return "unknown"
	}
	return kinds[k].name
}

// OfNode reports whether subjects of this kind are a bounded few per machine, whatever runs on it. Stores keep room for
// them when pods and containers would take everything.
func (k Kind) OfNode() bool {
	switch k {
	case Node, System, Class, NUMA, SystemNUMA:
		return true
	default:
		return false
	}
}

// Subject is what a sample is about. It is comparable; collectors build it once per pod or container and keep it.
type Subject struct {
	Kind Kind
	ID   string
}

// OfNode is the machine.
func OfNode() Subject { return Subject{Kind: Node} }

// OfSystem is the machine minus pods and host applications.
func OfSystem() Subject { return Subject{Kind: System} }

// OfQoS is the total of a QoS class.
func OfQoS(q protocol.QoS) Subject { return Subject{Class, word(q.String())} }

// OfPriority is the total of a priority class.
func OfPriority(p protocol.PriorityClass) Subject {
	if p == protocol.PriorityNone {
		return Subject{Class, "koord-none"} // not the same as pods without a QoS class
	}
	return Subject{Class, p.String()}
}

// OfNUMA is one memory node, OfSystemNUMA the system's part of it.
func OfNUMA(node int) Subject { return Subject{NUMA, strconv.Itoa(node)} }

// OfSystemNUMA is the system's part of one memory node.
func OfSystemNUMA(node int) Subject { return Subject{SystemNUMA, strconv.Itoa(node)} }

// OfHostApp is a host application by its name in the NodeSLO.
func OfHostApp(name string) Subject { return Subject{HostApp, name} }

// OfPod is a pod by UID.
func OfPod(uid string) Subject { return Subject{Pod, uid} }

// OfContainer is a container by the runtime's id.
func OfContainer(id string) Subject { return Subject{Container, id} }

// OfLLC is a last-level cache domain as a resctrl group ("" is the root group) sees it.
func OfLLC(group string, domain int) Subject { return Subject{LLC, group + "/" + strconv.Itoa(domain)} }

// OfDisk is a block device by "major:minor".
func OfDisk(dev string) Subject { return Subject{Disk, dev} }

// String is "kind" or "kind/ID".
func (s Subject) String() string {
	if s.ID == "" {
		return s.Kind.String()
	}
	return s.Kind.String() + "/" + s.ID
}

func word(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
