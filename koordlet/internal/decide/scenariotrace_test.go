// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"fmt"
	"strings"

	"github.com/koord-rt/koord-rt/policy/figure"
	"github.com/koord-rt/koord-rt/policy/suppress"
)

// tellAll writes what this step has changed.
func (p *paper) tellAll(second int, half string) {
	held := &p.out.Suppress
	switch held.Mode {
	case suppress.CPUSet:
		p.tell(second, half, "be", "CPUs "+held.CPUs.String()+": "+held.Reason)
	case suppress.Quota:
		p.tell(second, half, "be", "quota "+figure.Quota(held.Quota)+": "+held.Reason)
	case suppress.Unknown, suppress.Off:
		p.tell(second, half, "be", "nothing: "+held.Reason)
	}
	for _, e := range p.out.Events {
		fmt.Fprintf(&p.trace, "%d%ss %s: %s\n", second, half, e.Name, e.Text)
	}
	p.tellQuotas(second, half)
	p.tellMemory(second, half)
}

// tellQuotas tells of containers whose quota is another than the kubelet's, and of pods that are capped.
func (p *paper) tellQuotas(second int, half string) {
	for i := range p.out.Burst.Raises {
		if r := &p.out.Burst.Raises[i]; r.Container != "" {
			p.tell(second, half, "quota "+r.Container, figure.Quota(r.Quota)+": "+r.Reason)
		}
	}
	capped := map[string]bool{}
	for _, c := range p.out.Suppress.Pods {
		capped[c.Pod] = true
		p.tell(second, half, "cap "+strings.TrimPrefix(c.Pod, "uid-"), figure.CPUs(c.Limit)+": "+c.Reason)
	}
	for _, pod := range p.pods {
		if !capped[pod.uid] {
			p.tell(second, half, "cap "+pod.name, "")
		}
		for _, c := range pod.member.Containers {
			if p.out.Dynamic.Quotas[pod.uid].Factors[c.ID] == 0 {
				p.tell(second, half, "quota "+c.ID, "")
			}
		}
	}
}

// tellMemory tells of the node's pressure, of each memory.high that is not the policy's, and of what is reclaimed.
func (p *paper) tellMemory(second int, half string) {
	if p.facts.Urgent {
		return
	}
	m := &p.out.Memory
	p.tell(second, half, "memory", m.Pressure.String())
	highs := map[string]bool{}
	for _, h := range m.Highs {
		highs[h.Container] = true
		p.tell(second, half, "high "+h.Container, figure.Bytes(h.Bytes)+": "+h.Reason)
	}
	for _, pod := range p.pods {
		for _, c := range pod.member.Containers {
			if !highs[c.ID] {
				p.tell(second, half, "high "+c.ID, "")
			}
		}
	}
	for _, r := range p.out.Reclaims {
		p.tell(second, half, "reclaim "+r.Container, r.Reason)
	}
}

// tell writes a line of the trace where it says something else than the one of that key before; no text is what it is without us.
func (p *paper) tell(second int, half, key, text string) {
	if p.told[key] == text {
		return
	}
	p.told[key] = text
	if text == "" {
		text = "as without us"
	}
	fmt.Fprintf(&p.trace, "%d%ss %s: %s\n", second, half, key, text)
}
