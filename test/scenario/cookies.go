// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package scenario

import (
	"fmt"
	"os"
	"strings"
)

// Holder names a core-scheduling cookie by the first container ("POD/CONTAINER", in the order of the scenario) that
// carries it, because the kernel's numbers only tell cookies apart: "none" without a cookie. cookie reads one.
func (s *Scenario) Holder(w Want, cookie func(pod, container string) (uint64, error)) (string, error) {
	own, err := cookie(w.Pod, w.Container)
	if err != nil {
		return "", err
	}
	if own == 0 {
		return "none", nil
	}
	for _, p := range s.Pods {
		for _, c := range p.Containers {
			other, err := cookie(p.Name, c.Name)
			if err != nil {
				return "", err
			}
			if other == own {
				return p.Name + "/" + c.Name, nil
			}
		}
	}
	return "", fmt.Errorf("%s/%s is no container of the scenario", w.Pod, w.Container)
}

// SchemataLine finds a resource's domains in the content of a schemata file: "L3" in "    L3:0=ff;1=ff" is "0=ff;1=ff".
func SchemataLine(content, resource string) (string, error) {
	for line := range strings.Lines(content) {
		if name, domains, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == resource {
			return domains, nil
		}
	}
	return "", fmt.Errorf("no line %s in schemata %q", resource, content)
}

// group reads a line of a fake resctrl group.
func (f *Fake) group(w Want) (string, error) {
	if _, err := os.Stat(f.Tree.Roots.Resctrl + "/" + w.Group); err != nil {
		return "", fmt.Errorf("read group: %w", err)
	}
	content, err := f.procs.Schemata(w.Group)
	if err != nil {
		return "", err
	}
	return SchemataLine(content, w.File)
}

// cookie is the fake kernel's, of a container's process.
func (f *Fake) cookie(pod, container string) (uint64, error) {
	pid, err := f.pid(f.dir(pod, container))
	return f.cookies.byPID[pid], err
}

// cookies plays the kernel's core scheduling: a group's members carry one number, groups different ones.
type cookies struct {
	byPID   map[int]uint64
	byGroup map[string]uint64
}

func (c *cookies) Assign(group string, pid int) error {
	if c.byGroup[group] == 0 {
		c.byGroup[group] = uint64(len(c.byGroup)) + 1
	}
	c.byPID[pid] = c.byGroup[group]
	return nil
}

func (c *cookies) InGroup(group string, pid int) (bool, error) {
	return c.byPID[pid] != 0 && c.byPID[pid] == c.byGroup[group], nil
}

func (c *cookies) Clear(pid int) error {
	delete(c.byPID, pid)
	return nil
}
