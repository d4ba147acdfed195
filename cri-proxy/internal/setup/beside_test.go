// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
)

// The plugin counts while its status says that it is connected, and is fresh; its end is told once.
func TestBeside(t *testing.T) {
	t.Parallel()
	gone := 0
	b := &beside{runDir: t.TempDir(), proc: "/proc", gone: func() { gone++ }}
	now := time.Now()
	for _, step := range []struct {
		what, writer       string
		written, connected time.Time
		want               bool
		gone               int
	}{
		{"another program", "cri", now, now, false, 0},
		{"a plugin without a connection", "nri", now, time.Time{}, false, 0},
		{"a connected plugin", "nri", now, now, true, 0},
		{"a plugin that hangs", "nri", now.Add(-time.Minute), now, false, 1},
		{"one that has gone on", "nri", now, now, true, 1},
		{"one that lost its connection", "nri", now, time.Time{}, false, 2},
		{"the same a second later", "nri", now, time.Time{}, false, 2},
	} {
		err := status.Write(b.runDir, step.writer, status.Status{Written: step.written, ConnectedSince: step.connected})
		if err != nil {
			t.Fatal(err)
		}
		if got := b.now(); got != step.want || gone != step.gone {
			t.Errorf("%s: connected %v, told of its end %d times; want %v and %d", step.what, got, gone, step.want, step.gone)
		}
	}
}
