// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide

import (
	"errors"
	"fmt"
	"strings"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/predict"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Unread names the annotations of the Node object that cannot be read, of those that the agent goes by, and says why; nil for none. Each
// counts as absent, so that a reservation with a slip in it reserves nothing. So does a CPU that an annotation names and that is not
// online; without any the machine is not known. The bandwidth of the network is its loop's to tell.
func Unread(n *kube.Node, online topo.CPUSet) error {
	var parts, cpus []string
	note := func(key string, err error) {
		if err != nil {
			parts = append(parts, key+": "+err.Error())
		}
	}
	lacks := func(key string, named topo.CPUSet) {
		if missing := named.Minus(online); !online.Empty() && !missing.Empty() {
			cpus = append(cpus, key+": "+missing.String())
		}
	}
	set, _, err := reservation(n)
	note(protocol.AnnotationNodeReservation, err)
	lacks(protocol.AnnotationNodeReservation, set)
	set, _, err = systemQoS(n)
	note(protocol.AnnotationSystemQoSResource, err)
	lacks(protocol.AnnotationSystemQoSResource, set)
	_, err = normalization(n)
	note(protocol.AnnotationNormalizationRatio, err)
	_, err = predict.Raw(n.Annotations[protocol.AnnotationRawAllocatable])
	note(protocol.AnnotationRawAllocatable, err)
	var all []string
	if len(parts) > 0 {
		all = append(all, fmt.Sprintf("annotations of node %s count as absent: %s", n.Name, strings.Join(parts, "; ")))
	}
	if len(cpus) > 0 {
		all = append(all, fmt.Sprintf("annotations of node %s name CPUs that are not online: %s", n.Name, strings.Join(cpus, "; ")))
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(all, "; "))
}

// reservation is what an administrator keeps from the pods: CPUs, or an amount without naming them.
func reservation(n *kube.Node) (set topo.CPUSet, amount unit.MilliCPU, err error) {
	r, err := protocol.ParseNodeReservation(n.Annotations[protocol.AnnotationNodeReservation])
	if err != nil {
		return topo.CPUSet{}, 0, err
	}
	if set, err = topo.ParseCPUSet(r.CPUs); err != nil {
		return topo.CPUSet{}, 0, fmt.Errorf("reservedCPUs: %w", err)
	}
	return set, unit.MilliCPU(r.MilliCPU), nil
}

// reservation is the node's, as far as it has such CPUs.
func (f *Facts) reservation() (topo.CPUSet, unit.MilliCPU) {
	if f.Node == nil {
		return topo.CPUSet{}, 0
	}
	set, amount, _ := reservation(f.Node) // Unread tells of one that cannot be read
	return set.Intersect(f.all()), amount
}

// systemQoS is the set of SYSTEM pods.
func systemQoS(n *kube.Node) (set topo.CPUSet, exclusive bool, err error) {
	q, err := protocol.ParseSystemQoS(n.Annotations[protocol.AnnotationSystemQoSResource])
	if err != nil {
		return topo.CPUSet{}, false, err
	}
	if set, err = topo.ParseCPUSet(q.CPUSet); err != nil {
		return topo.CPUSet{}, false, fmt.Errorf("cpuset: %w", err)
	}
	return set, q.Exclusive, nil
}

// systemQoS is the node's, as far as it has such CPUs.
func (f *Facts) systemQoS() (topo.CPUSet, bool) {
	if f.Node == nil {
		return topo.CPUSet{}, false
	}
	set, exclusive, _ := systemQoS(f.Node) // Unread tells of one that cannot be read
	set = set.Intersect(f.all())
	return set, exclusive && !set.Empty()
}

// normalization is the ratio of the node's CPUs to the cluster's; 0 is off.
func normalization(n *kube.Node) (unit.Ratio, error) {
	r, err := protocol.ParseNormalizationRatio(n.Annotations[protocol.AnnotationNormalizationRatio])
	return unit.Ratio(r), err
}

// normalization is the node's.
func (f *Facts) normalization() unit.Ratio {
	if f.Node == nil {
		return 0
	}
	r, _ := normalization(f.Node) // Unread tells of one that cannot be read
	return r
}
