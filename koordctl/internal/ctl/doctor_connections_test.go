// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
)

// connected makes the machine's list of sockets: NRI's, which listens, a connection of somebody to another socket, and one for each path.
func (h *host) connected(t *testing.T, paths ...string) {
	t.Helper()
	table := "Num       RefCount Protocol Flags    Type St Inode Path\n" +
		"00000000a3a0c7b6: 00000002 00000000 00010000 0001 01 20 /run/nri/nri.sock\n" +
		"000000001281b734: 00000003 00000000 00000000 0001 03 21 /run/containerd/containerd.sock\n" +
		"000000001281b735: 00000003 00000000 00000000 0001 03 22\n"
	for _, path := range paths {
		table += "000000001281b736: 00000003 00000000 00000000 0001 03 23 " + path + "\n"
	}
	h.file(t, "/proc/1/net/unix", table)
}

func TestConnections(t *testing.T) {
	t.Parallel()
	const socket = "/run/nri/nri.sock"
	up := &status.Entry{Alive: true}
	up.ConnectedSince = time.Unix(1, 0)
	for name, c := range map[string]struct {
		paths  []string
		entry  *status.Entry
		result verdict
		detail string
	}{
		"koord-nri alone":            {[]string{socket}, up, ok, "no other at /run/nri/nri.sock"},
		"nobody":                     {nil, nil, ok, "no other"},
		"another":                    {[]string{socket, socket}, up, warn, "1 beside koord-nri at /run/nri/nri.sock"},
		"another, and we are away":   {[]string{socket}, &status.Entry{Alive: true}, warn, "1 beside"},
		"two, by another path":       {[]string{"/var/run/nri/nri.sock", "/var/run/nri/nri.sock", socket}, up, warn, "2 beside"},
		"somebody else's NRI socket": {[]string{socket, "/run/lab/nri.sock"}, up, ok, "no other"},
		"not even koord-nri":         {[]string{"/run/lab/nri.sock"}, up, warn, "not known"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, "6.12")
			h.connected(t, c.paths...)
			e := &env{hostRoot: h.dir}
			if got := e.checkConnections(socket, c.entry); got.Result != c.result || !strings.Contains(got.Detail, c.detail) || (got.Next == "") != (c.result == ok) {
				t.Errorf("%+v", got)
			}
		})
	}
	e := &env{hostRoot: t.TempDir()}
	if got := e.checkConnections(socket, nil); got.Result != warn || got.Next == "" {
		t.Errorf("without a list: %+v", got)
	}
}
