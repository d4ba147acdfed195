// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"encoding/json"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/koordlet/internal/amount"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/policy/predict"
)

// NodeOf is who is here as Kubernetes tells. Pods that have finished are nobody. A pod's request is what it asks of the
// node's own CPUs and memory: batch and mid amounts are lent, and lent once only.
func NodeOf(s *pods.Snapshot, allocatable predict.Resources) Node {
	n := Node{Allocatable: allocatable}
	for _, p := range s.Pods {
		if p.Finished() {
			continue
		}
		requests := p.Requests()
		one := predict.Pod{
			UID: p.UID, Priority: priority(p), QoS: p.Class(), Started: wall(p.Started), Terminating: p.Deleting(),
			Request: predict.Resources{CPU: requests.CPU, Memory: requests.Memory},
		}
		if runs(p) {
			n.Pods = append(n.Pods, one)
		} else {
			n.Waiting = append(n.Waiting, one)
		}
	}
	return n
}

// runs reports whether something of the pod can be measured: init containers run in a pod that is still pending.
func runs(p *pods.Pod) bool {
	return p.Phase == pods.PhaseRunning || slices.ContainsFunc(p.Containers, func(c pods.Container) bool { return c.Running })
}

// priority is the band, with the default of a QoS label (koordinator-node.md §1.3). A pod without either stays without:
// upstream has a model of its own for those.
func priority(p *pods.Pod) protocol.PriorityClass {
	if p.PriorityClass != protocol.PriorityNone {
		return p.PriorityClass
	}
	return p.QoS.DefaultPriorityClass()
}

// Allocatable is what the scheduler really has on the node: raw, the annotation raw-allocatable that the manager writes
// where it amplifies, before status.allocatable. A resource that raw does not name is not amplified. False when the node
// tells nothing, or raw cannot be read: then what is amplified is unknown.
func Allocatable(status amount.Amounts, raw string) (predict.Resources, bool) {
	own, err := Raw(raw)
	if err != nil {
		return predict.Resources{}, false
	}
	if own.CPU > 0 {
		status.CPU = own.CPU
	}
	if own.Memory > 0 {
		status.Memory = own.Memory
	}
	return predict.Resources{CPU: status.CPU, Memory: status.Memory}, status.CPU > 0 && status.Memory > 0
}

// Raw reads the annotation raw-allocatable, {"cpu":"32","memory":"60Gi"}. An empty text is nothing.
func Raw(text string) (own amount.Amounts, err error) {
	if text == "" {
		return own, nil
	}
	var list amount.List
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return own, err
	}
	return amount.Parse(list)
}
