// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/model/plan"
)

// changeSchemata compares one resource of a resctrl group. A setting's value may name fewer cache ids than the group
// has: only those are compared, as the kernel only changes those.
func (a *Applier) changeSchemata(s plan.Setting) (cgroup.Change, error) {
	if err := a.hook(s.Knob); err != nil {
		return cgroup.Change{}, err
	}
	content, err := a.o.Groups.Schemata(s.Target.Cgroup)
	if err != nil {
		return cgroup.Change{}, err
	}
	line, ok := schemataLine(content, s.Key)
	if !ok {
		return cgroup.Change{}, fmt.Errorf("%s[%s] of %s: %w: no such resource in schemata", s.Knob, s.Key, s.Target, ErrUnsupported)
	}
	c := cgroup.Change{Current: plan.Text(line), Same: sameDomains(s.Key, s.Value.String(), line)}
	if c.Same {
		return c, nil
	}
	c.Writes = []cgroup.Write{{File: a.schemataFile(s.Target.Cgroup), Data: s.Key + ":" + strings.TrimPrefix(s.Value.String(), s.Key+":")}}
	c.Original = []string{s.Key + ":" + line}
	return c, nil
}

func (a *Applier) schemataFile(group string) string {
	if group == "" {
		return a.o.Roots.Resctrl + "/schemata"
	}
	return a.o.Roots.Resctrl + "/" + group + "/schemata"
}

// schemataLine finds a resource in a schemata file: "    L3:0=fffff;1=fffff\n    MB:0=100;1=100\n".
func schemataLine(content, resource string) (string, bool) {
	for line := range strings.SplitSeq(content, "\n") {
		if name, rest, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == resource {
			return rest, true
		}
	}
	return "", false
}

// sameDomains reports whether every "id=value" of want stands in have. Masks are hexadecimal, bandwidth is decimal.
func sameDomains(resource, want, have string) bool {
	w, ok1 := domains(resource, strings.TrimPrefix(want, resource+":"))
	h, ok2 := domains(resource, have)
	if !ok1 || !ok2 || len(w) == 0 {
		return false
	}
	for id, v := range w {
		if got, ok := h[id]; !ok || got != v {
			return false
		}
	}
	return true
}

func domains(resource, line string) (map[int]uint64, bool) {
	base := 16
	if strings.HasPrefix(resource, "MB") || strings.HasPrefix(resource, "SMBA") {
		base = 10
	}
	out := map[int]uint64{}
	for part := range strings.SplitSeq(strings.TrimSpace(line), ";") {
		id, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		n, err1 := strconv.Atoi(strings.TrimSpace(id))
		v, err2 := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(value), "0x"), base, 64)
		if !ok || err1 != nil || err2 != nil {
			return nil, false
		}
		out[n] = v
	}
	return out, true
}
