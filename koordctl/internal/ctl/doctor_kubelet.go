// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/status"
)

// checkKubelet recognises kubelet's own managers, by the checkpoints that the daemons look at: their knobs are left to them.
func (e *env) checkKubelet(n config.Node) []check {
	var out []check
	for _, m := range []struct{ name, file, static, knob, next string }{
		{"kubelet-cpu", n.Host.KubeletCPUManagerState, "static", "cpuset.cpus", "to pin containers; until then those that the kubelet has placed keep their CPUs, unless the scheduler gave their pod some"},
		{"kubelet-memory", n.Host.KubeletMemoryManagerState, "Static", "cpuset.mems", "to choose memory nodes; until then it chooses none"},
	} {
		c := check{Name: m.name, Result: ok, Detail: "no static policy"}
		b, err := readHead(e.path(m.file))
		var state struct {
			PolicyName string `json:"policyName"`
		}
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			c.Result, c.Detail, c.Next = warn, err.Error(), "run koordctl as root"
		case json.Unmarshal(b, &state) != nil:
			c.Result, c.Detail, c.Next = warn, m.file+" cannot be read", "kubelet writes it anew when it starts"
		case state.PolicyName == m.static:
			c.Result, c.Detail = warn, "kubelet's static policy owns "+m.knob
			c.Next = "set kubelet's policy to none where koord-rt is " + m.next
		}
		out = append(out, c)
	}
	return out
}

// kubeletConfig is where kubeadm puts the kubelet's configuration.
const kubeletConfig = "/var/lib/kubelet/config.yaml"

// checkMemoryQoS compares the kubelet's feature gate MemoryQoS with what our daemon takes for its owner: memory.min and
// memory.low of pods and their ancestors have one writer. Auto looks at memory.min of kubepods, which is 0 on an empty
// node whoever owns it.
func (e *env) checkMemoryQoS(d *installed, told string) check {
	c := check{Name: "kubelet-memory-qos", Result: ok}
	b, err := readHead(e.path(kubeletConfig))
	if errors.Is(err, os.ErrNotExist) {
		c.Detail = "no " + kubeletConfig + "; " + d.program + "'s host.kubeletMemoryQoS is " + told
		return c
	}
	if err != nil {
		return check{Name: c.Name, Result: warn, Detail: err.Error(), Next: "run koordctl as root"}
	}
	gate, set, policy, err := memoryQoSGate(b)
	if err != nil {
		return check{Name: c.Name, Result: warn, Detail: kubeletConfig + ": " + err.Error(), Next: "correct the kubelet's configuration"}
	}
	taken := takenForKubelets(d.status)
	c.Detail = "the kubelet's configuration does not name MemoryQoS"
	if set {
		c.Detail = fmt.Sprintf("the kubelet's MemoryQoS is %t", gate)
	}
	if gate && policy != tieredReservation {
		c.Detail += ", which since Kubernetes 1.36 protects no memory without memoryReservationPolicy: " + tieredReservation
	}
	c.Detail += fmt.Sprintf(", %s's host.kubeletMemoryQoS is %s", d.program, told)
	state := func(answer string) string {
		return fmt.Sprintf("set host.kubeletMemoryQoS: %s in %s and restart %s", answer, d.file, d.program)
	}
	switch {
	case gate && policy == noReservation && told == config.MemoryQoSYes:
		c.Result, c.Next = warn, "nobody protects the pods' memory: "+state("auto")
	case gate && policy == noReservation:
		c.Result = warn
		c.Next = "the kubelet takes the sums above pods away once a minute, and they come back with the next drift check (driftInterval): switch the gate off, or set " +
			"memoryReservationPolicy: " + tieredReservation + " and " + state("yes")
	case gate && told == config.MemoryQoSNo:
		c.Result, c.Next = warn, "two writers of memory.min undo each other: "+state("yes")+", or switch the gate off"
	case gate && told == config.MemoryQoSAuto && d.status != nil && !taken:
		c.Result, c.Next = warn, d.program+" has not seen it, as on a node without protected pods: "+state("yes")
	case set && !gate && told == config.MemoryQoSYes:
		c.Result, c.Next = warn, "nobody protects the pods' memory: "+state("auto")
	case set && !gate && taken:
		c.Result = warn
		c.Next = "memory.min on kubepods is a leftover that was taken for the kubelet's: " + state("no")
	}
	return c
}

// takenForKubelets: the protections are left to the kubelet.
func takenForKubelets(s *status.Entry) bool {
	if s == nil {
		return false
	}
	for _, f := range s.Features {
		if f.Feature == protocol.FeatureMemory.String() && strings.Contains(f.Detail, "kubelet's MemoryQoS is on") {
			return true
		}
	}
	return false
}

// Values of memoryReservationPolicy (KEP-2570, Kubernetes 1.36): who protects nothing sets memory.min of kubepods, and memory.low of its
// Burstable pods' directory, to 0.
const (
	tieredReservation = "TieredReservation"
	noReservation     = "None"
)

// memoryQoSGate reads featureGates of a KubeletConfiguration, and its memoryReservationPolicy, "" where it names none.
func memoryQoSGate(b []byte) (on, set bool, policy string, err error) {
	var k struct {
		FeatureGates map[string]bool `yaml:"featureGates"`
		Policy       string          `yaml:"memoryReservationPolicy"`
	}
	if err := strategy.Loose(b, &k); err != nil {
		return false, false, "", err
	}
	on, set = k.FeatureGates["MemoryQoS"]
	return on, set, k.Policy, nil
}
