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
// bear the socket's path. One that comes from a network namespace of its own stands in that one's list, and is not seen.
func (e *env) checkConnections(socket string, s *status.Entry) check {
	c := check{Name: "nri-connections", Result: ok}
	// PID 1's, since "self" may be in a container's network namespace.
	data, err := os.ReadFile(e.path("/proc/1/net/unix"))
	if err != nil {
		return check{Name: c.Name, Result: warn, Detail: err.Error(), Next: "run koordctl as root in the host's PID namespace"}
	}
	others := connectionsTo(string(data), func(path string) bool { return e.sameFile(path, socket) })
	if s != nil && s.Alive && !s.ConnectedSince.IsZero() {
		others--
	}
	if others <= 0 {
		c.Detail = "no other plugin in the host's network namespace"
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

// sameFile reports whether two paths of the machine lead to one file: /var/run is /run.
func (e *env) sameFile(a, b string) bool {
	if a == b {
		return true
	}
	one, err := os.Stat(e.path(a))
	if err != nil {
		return false
	}
	other, err := os.Stat(e.path(b))
	return err == nil && os.SameFile(one, other)
}
