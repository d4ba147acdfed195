// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"fmt"
	"os"
	"strings"

	"github.com/koord-rt/koord-rt/daemon/status"
)

// connectedSocket is the state of a socket with a peer in /proc/net/unix (SS_CONNECTED, include/uapi/linux/net.h).
const connectedSocket = "03"

// checkConnections counts who is connected to the runtime's NRI socket beside koord-nri, whatever its name: the runtime's ends of its connections
// bear the socket's path. One that comes from a network namespace of its own stands in that one's list, and one that the runtime has started itself
// has no path: neither is seen (checkOtherPlugins has the latter).
func (e *env) checkConnections(socket string, s *status.Entry) check {
	c := check{Name: "nri-connections", Result: ok}
	// PID 1's, since "self" may be in a container's network namespace.
	data, err := os.ReadFile(e.path("/proc/1/net/unix"))
	if err != nil {
		return check{Name: c.Name, Result: warn, Detail: err.Error(), Next: "run koordctl as root in the host's PID namespace"}
	}
	others := connectionsTo(string(data), func(path string) bool { return sameSocket(path, socket) })
	if s != nil && s.Alive && !s.ConnectedSince.IsZero() {
		others--
	}
	switch {
	case others < 0:
		c.Result, c.Detail = warn, "not known: koord-nri's own connection to "+socket+" is not in PID 1's list"
		c.Next = "run koordctl in the host's PID namespace; a koord-nri with a network namespace of its own cannot be told from others"
		return c
	case others == 0:
		c.Detail = "no other at " + socket
		return c
	}
	c.Result, c.Detail = warn, fmt.Sprintf("%d beside koord-nri at %s", others, socket)
	c.Next = "the runtime's log says who has connected; where one sets a knob of ours, container creation fails with a conflict: list that knob under cede in nri.yaml"
	return c
}

// connectionsTo counts the connected sockets that bear a path, in the format of /proc/net/unix: Num RefCount Protocol Flags Type St Inode Path.
func connectionsTo(table string, isIt func(path string) bool) (n int) {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) == 8 && fields[5] == connectedSocket && isIt(fields[7]) {
			n++
		}
	}
	return n
}

// sameSocket reports whether two paths of the machine are one socket's: /var/run is /run on every machine that runs containers (FHS 3.0).
func sameSocket(a, b string) bool {
	plain := func(path string) string {
		if below, ok := strings.CutPrefix(path, "/var/run/"); ok {
			return "/run/" + below
		}
		return path
	}
	return plain(a) == plain(b)
}
