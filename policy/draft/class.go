// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package draft

import (
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/workload"
)

// On dereferences a leaf that may be missing.
func On(b *bool) bool { return b != nil && *b }

// Num dereferences a leaf that may be missing; 0 then.
func Num(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// Str dereferences a leaf that may be missing; "" then.
func Str(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// PinClass is the class for CPU placement: the label's; LSR for a pod without label that the scheduler gave CPUs; LS for
// the other Guaranteed and unknown pods without label, which own no CPUs and so live in the share pool.
func PinClass(p *workload.Pod) protocol.QoS {
	if p.Ask.QoS != protocol.QoSNone {
		return p.Ask.QoS
	}
	if p.Ask.ResourceStatus != nil && p.Ask.ResourceStatus.CPUSet != "" {
		return protocol.QoSLSR
	}
	if p.KubeQoS == protocol.KubeBestEffort {
		return protocol.QoSBE
	}
	return protocol.QoSLS
}

// CPUQOS is the CPU strategy of the pod: its class' if enabled, overlaid by the cpuQOS annotation for LS pods. A
// Guaranteed pod without label uses LSR's values when LSR is enabled, else LS's (upstream). Why names the source; ok is
// false when nothing applies.
func CPUQOS(v *node.View, p *workload.Pod) (q strategy.CPUQOS, why string, ok bool) {
	class := p.Class()
	if class == protocol.QoSLS && p.Ask.CPUQOS != nil {
		q, why = *p.Ask.CPUQOS, "annotation cpuQOS"
		if !On(q.Enable) {
			// Upstream: an annotation that does not enable means the neutral value.
			return strategy.CPUQOS{GroupIdentity: new(int64)}, why, true
		}
		return q, why, true
	}
	if class == protocol.QoSNone {
		return q, "", false
	}
	c := v.Strategy.ClassFor(class.String())
	if p.Ask.QoS == protocol.QoSNone && class == protocol.QoSLSR && !On(c.CPUQOS.Enable) {
		class = protocol.QoSLS
		c = v.Strategy.ClassFor("LS")
	}
	if !On(c.CPUQOS.Enable) {
		return q, "", false
	}
	return *c.CPUQOS, classWhy(class), true
}

// classWhy is "class X" without building a string.
func classWhy(q protocol.QoS) string {
	switch q {
	case protocol.QoSLSE:
		return "class LSE"
	case protocol.QoSLSR:
		return "class LSR"
	case protocol.QoSLS:
		return "class LS"
	case protocol.QoSBE:
		return "class BE"
	case protocol.QoSSystem:
		return "class SYSTEM"
	default:
		return "no class"
	}
}
