// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

// serverEnds kills the API server, serverStarts brings it back: it is ready when it has read the roles, which readyz has as
// informer-sync (kubernetes/kubernetes#92644). Until then it denies everything.
func (n *governed) serverEnds(t *testing.T) {
	t.Helper()
	n.away = append(n.away, span{from: time.Now()})
	if err := n.c.EndAPIServer(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func (n *governed) serverStarts(t *testing.T) {
	t.Helper()
	begun := time.Now()
	if err := n.c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	n.away[len(n.away)-1].to = now
	t.Logf("the API server is back after %s", now.Sub(begun).Round(time.Millisecond))
}

// serverAway: what the API server said last is put in force again while it is away, and what it says afterwards too. That is ten
// seconds, or as long as KOORD_RT_AWAY says (make lab-long); koordlet's log does not fill the disk meanwhile. It follows its
// NodeSLO again ten seconds after the server's return (M-1 of the documents). A koordlet that begins while nobody answers has in force
// what the one before it knew.
func (n *governed) serverAway(t *testing.T) {
	length := 10 * time.Second
	if text := os.Getenv("KOORD_RT_AWAY"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	n.serverEnds(t)
	n.unheard(t)
	log := len(read(t, filepath.Join(n.dir, "koordlet.log")))
	n.bears(t, length.Seconds()) // a tick is a second
	log = len(read(t, filepath.Join(n.dir, "koordlet.log"))) - log
	t.Logf("the API server was away for %s: %d bytes of log", time.Since(n.away[len(n.away)-1].from).Round(time.Second), log)
	if most := 4<<10 + 8*int(length.Seconds()); log > most {
		t.Errorf("koordlet logged %d bytes while the API server was away, want %d at most", log, most)
	}
	n.disturb(t)
	n.quotaWithin(t, 0, 30)
	n.idle(t, "1")
	n.serverStarts(t)
	n.back = time.Now()
	if err := mostly(3, resumed, func(again bool) time.Duration {
		if again { // not for so long
			n.serverEnds(t)
			n.unheard(t)
			n.ticksTo(t, n.ticked(t)+min(length, 10*time.Second).Seconds())
			n.serverStarts(t)
		}
		return n.resumes(t)
	}); err != nil {
		t.Errorf("from the server's return until koordlet follows its NodeSLO again: %v", err)
	}

	n.serverEnds(t)
	n.kill(t)
	n.disturb(t)
	n.reborn()
	n.quotaWithin(t, 0, 30)
	n.idle(t, "1")
	n.serverStarts(t)
	n.patch(t, threshold(map[string]any{"cpuSuppressThresholdPercent": 20}))
	n.quotaWithin(t, 0, 20)
	n.inForce(t)
	n.up(t)
}

// resumed is within what time of the server's return a watch has to stand again.
const resumed = 10 * time.Second

// unheard waits until koordlet says that it does not hear of its NodeSLO.
func (n *governed) unheard(t *testing.T) {
	t.Helper()
	n.sees(t, `koord_rt_koordlet_source_state\{source="nodeslo",state="degraded"\} 1`)
}

// disturb takes the quota of the best-effort class away, as a human might.
func (n *governed) disturb(t *testing.T) {
	t.Helper()
	file, none := n.quotaFile()
	if err := cgroups.Write(n.class(), file, none); err != nil {
		t.Fatal(err)
	}
}

// resumes waits until koordlet follows its NodeSLO again, by a watch that has stood for a second, and tells how long after the API server
// was ready that began.
func (n *governed) resumes(t *testing.T) (took time.Duration) {
	t.Helper()
	last := n.away[len(n.away)-1]
	eventually(t, 60*time.Second, func() error {
		stands := map[string]time.Time{}
		for _, c := range n.audit.calls(t, func(c *call) bool {
			return c.what() == "watch nodeslos" && c.Response.Code == 200 && c.At.After(last.from)
		}) {
			if stands[c.ID] = c.At; c.Stage == "ResponseComplete" {
				delete(stands, c.ID)
			}
		}
		for _, at := range stands {
			if time.Since(at) > time.Second {
				took = max(0, at.Sub(last.to)) // the server may take it before it says that it is ready
				return nil
			}
		}
		return fmt.Errorf("koordlet does not follow its NodeSLO")
	})
	t.Logf("koordlet follows its NodeSLO again %s after the API server was ready", took.Round(time.Millisecond))
	return took
}

// kill ends koordlet by kill -9.
func (n *governed) kill(t *testing.T) {
	t.Helper()
	if err := n.agent.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-n.agent.done
}

// madeAnew: somebody deletes the node's NodeMetric, and another one takes its place, which asks for a report once an hour. Each has one soon afterwards,
// and that does not wait for the ten seconds that pass between two reports to one object, whatever the news.
func (n *governed) madeAnew(t *testing.T) {
	path := reports + "/" + n.k.Node
	var last time.Time
	nearest := time.Hour
	for range 5 {
		if err := n.c.Admin().Delete(t.Context(), path, -1); err != nil {
			t.Fatal(err)
		}
		if err := n.makeMetric(t.Context(), 3600); err != nil {
			t.Fatal(err)
		}
		var at time.Time
		eventually(t, 60*time.Second, func() error {
			o, err := n.c.Admin().Get(t.Context(), path)
			if err == nil {
				at, err = time.Parse(time.RFC3339, o.Str("status", "updateTime"))
			}
			return err
		})
		if !last.IsZero() {
			nearest = min(nearest, at.Sub(last))
		}
		last = at
	}
	if nearest > 7*time.Second {
		t.Errorf("of five objects no two had their reports within %s", nearest)
	}
}
