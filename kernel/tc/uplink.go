// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package tc

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/unit"
)

// ErrNamespace: the link of a container's own namespace is not the machine's uplink.
var ErrNamespace = errors.New("this process is not in the machine's network namespace (hostNetwork)")

// atHome reports whether the calling thread is in the network namespace of process 1. Where nobody may look at that one (Yama, a
// sandbox), the names of the links in both have to do.
func atHome(proc string) error {
	machine, err := os.Stat(proc + "/1/ns/net")
	own, oerr := os.Stat("/proc/thread-self/ns/net")
	if err == nil && oerr == nil {
		if !os.SameFile(machine, own) {
			return ErrNamespace
		}
		return nil
	}
	theirs, err := linkNames(proc + "/1/net/dev")
	ours, oerr := linkNames("/proc/thread-self/net/dev")
	if err = errors.Join(err, oerr); err != nil {
		return fmt.Errorf("find the machine's network namespace: %w", err)
	}
	if !slices.Equal(theirs, ours) {
		return ErrNamespace
	}
	return nil
}

// linkNames are the links of a net/dev file, sorted (Documentation/filesystems/proc.rst, 1.4).
func linkNames(path string) (out []string, err error) {
	text, err := root.Read(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			out = append(out, strings.TrimSpace(name))
		}
	}
	slices.Sort(out)
	return out, nil
}

// Uplink is the link of the default route with its speed; an empty name where there is no such route, and 0 where the link does not
// tell.
func (s Shaper) Uplink() (name string, rate unit.BitRate, err error) {
	if s.Proc != "" {
		if err = atHome(s.Proc); err != nil {
			return "", 0, err
		}
	}
	err = with(func(c *conn) error {
		index, err := c.uplink()
		if err != nil || index == 0 {
			return err
		}
		l, err := c.linkAt(index)
		name = l.name
		return err
	})
	if name == "" || strings.Contains(name, "/") {
		return "", 0, err
	}
	return name, speed(s.Sys, name), err
}

// Tunnels are devices that hide the addresses of pods, "flannel.1 (vxlan)".
func (Shaper) Tunnels() (out []string, err error) {
	err = with(func(c *conn) error {
		out, err = c.tunnels()
		return err
	})
	return out, err
}
