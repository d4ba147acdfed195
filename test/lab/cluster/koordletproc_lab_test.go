// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/child"
)

// process is a program under test; it ends with the test.
type process struct {
	cmd  *exec.Cmd
	done <-chan struct{} // closed when it has ended
}

// startProgram starts a program; its output goes to a file, the end of which is shown if the test fails.
func startProgram(t *testing.T, log, name string, args ...string) *process {
	t.Helper()
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := &process{cmd: exec.Command(name, args...)}
	p.cmd.Stdout, p.cmd.Stderr = f, f
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.done, err = child.Start(p.cmd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.end(t)
		if t.Failed() {
			t.Logf("end of %s:\n%s", log, logEnd(log))
		}
	})
	return p
}

// end tells it to stop.
func (p *process) end(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-p.done:
	case <-time.After(60 * time.Second):
		t.Errorf("%s did not end within 60 s", p.cmd.Path)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// eventually polls what another process brings about; a limit counts where it is longer than soon.
func eventually(t *testing.T, limit time.Duration, check func() error) {
	t.Helper()
	promptly(t, max(limit, soon), check)
}

// promptly is eventually where the limit is part of what is shown.
func promptly(t *testing.T, limit time.Duration, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		begun := time.Now()
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", limit, err)
		}
		time.Sleep(lab.Pause(time.Since(begun), 50*time.Millisecond))
	}
}

// mostly takes up to n times, an odd number, until more than half of them are within the limit, which is no error, or beyond it: a machine without a
// CPU makes one of them long, and what is looked at now and then only makes one short.
func mostly(n int, limit time.Duration, take func(again bool) time.Duration) error {
	var all []time.Duration
	for within, beyond := 0, 0; within <= n/2; {
		took := take(len(all) > 0)
		all = append(all, took.Round(time.Millisecond))
		if took <= limit {
			within++
		} else if beyond++; beyond > n/2 {
			return fmt.Errorf("it took %v, want %s for most", all, limit)
		}
	}
	return nil
}

// atRest is a count that has not moved for 5 s: what began before has come to its end. Looks are counted, since a starved machine may
// take none in that time.
func atRest(t *testing.T, count func() int) int {
	t.Helper()
	is, same := count(), 0
	for end := time.Now().Add(3 * time.Minute); same < 10; same++ {
		time.Sleep(500 * time.Millisecond)
		if now := count(); now != is {
			is, same = now, -1
		}
		if time.Now().After(end) {
			t.Fatalf("no rest in 3 min: %d", is)
		}
	}
	return is
}

// asks is koordlet's answer on its socket.
func (n *governed) asks(t *testing.T, url string, header http.Header) ([]byte, error) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", n.metrics)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.300s", url, resp.Status, text)
	}
	return text, err
}

// answers: /healthz says that all is well, and koordctl top shows the node, its loops, its QoS classes, and every pod with its class and what it
// uses now, once or in a terminal again and again.
func (n *governed) answers(t *testing.T) {
	if body, err := n.asks(t, "http://koordlet/healthz", nil); err != nil || string(body) != "ok\n" {
		t.Errorf("/healthz: %q, %v", body, err)
	}
	text, err := n.shows(t, "node")
	for _, part := range []string{n.k.Node + ": koordlet ", fmt.Sprintf(" of %d CPUs", runtime.NumCPU()), "LOOP", "suppress"} {
		if err != nil || !strings.Contains(text, part) {
			t.Fatalf("koordctl top node does not say %q, %v:\n%s", part, err, text)
		}
	}
	classes := map[string]string{"ls": "LS", "prod": "LS", "victim": "LS", "be-low": "BE", "be-kept": "BE"}
	eventually(t, 20*time.Second, func() error {
		out, err := n.shows(t, "pods", "-o", "json")
		if err != nil {
			return err
		}
		var shown struct {
			Alive bool
			Node  status.Node
			Pods  []status.Pod
		}
		if err := json.Unmarshal([]byte(out), &shown); err != nil {
			return fmt.Errorf("koordctl top pods: %w: %s", err, out)
		}
		got, errs := map[string]string{}, []error(nil)
		for _, p := range shown.Pods {
			got[p.Name] = p.Class
			if p.Used.CPU == nil || p.Used.Memory == nil {
				return fmt.Errorf("koordctl top pods: %s uses nothing: %s", p.Name, out)
			}
			errs = append(errs, within(p.Name, float64(*p.Used.CPU)/1000, float64(*p.Used.Memory)))
		}
		if !shown.Alive || int(shown.Node.Capacity.CPU) != 1000*runtime.NumCPU() || !maps.Equal(got, classes) {
			return fmt.Errorf("koordctl top pods: want %q: %s", classes, out)
		}
		return errors.Join(errs...)
	})
	n.topClasses(t)
	n.topWatched(t)
}

// shows is what koordctl top says.
func (n *governed) shows(t *testing.T, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"--run-dir", filepath.Join(n.dir, "run"), "top"}, args...)
	out, err := exec.CommandContext(t.Context(), bin("koordctl"), args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("koordctl %q: %w: %s", args, err, out)
	}
	return string(out), err
}

const metrics = "http://koordlet/metrics"

// sees waits until koordlet's metrics have a line that a pattern fits.
func (n *governed) sees(t *testing.T, pattern string) {
	t.Helper()
	line := regexp.MustCompile("(?m)^" + pattern + "$")
	eventually(t, 20*time.Second, func() error {
		text, err := n.asks(t, metrics, nil)
		if err == nil && !line.Match(text) {
			err = fmt.Errorf("koordlet's metrics have no line %s", pattern)
		}
		return err
	})
}

// figure is one of koordlet's series, by its name with labels.
func (n *governed) figure(t *testing.T, series string) float64 {
	t.Helper()
	text, err := n.asks(t, metrics, nil)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatalf("%s: %v", series, err)
			}
			return v
		}
	}
	t.Fatalf("koordlet's metrics have no %s", series)
	return 0
}

// ticked is how often koordlet has ticked, ticksTo waits for that.
func (n *governed) ticked(t *testing.T) float64 {
	t.Helper()
	return n.figure(t, `koord_rt_koordlet_loop_duration_seconds_count{loop="tick"}`)
}

func (n *governed) ticksTo(t *testing.T, count float64) {
	t.Helper()
	eventually(t, max(2*time.Minute, time.Duration(2*(count-n.ticked(t)))*time.Second), func() error {
		if now := n.ticked(t); now < count {
			return fmt.Errorf("koordlet has ticked %v times, want %v", now, count)
		}
		return nil
	})
}

// vitals are koordlet's descriptors, goroutines and KiB of resident memory.
func (n *governed) vitals(t *testing.T) (v [3]int) {
	t.Helper()
	at := "/proc/" + strconv.Itoa(n.agent.cmd.Process.Pid)
	fds, err := os.ReadDir(at + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	v[0], v[1] = len(fds), int(n.figure(t, "koord_rt_koordlet_goroutines"))
	for line := range strings.Lines(read(t, at+"/status")) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			v[2], err = strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	if err != nil || v[2] == 0 {
		t.Fatalf("%s/status: %v", at, err)
	}
	return v
}

// bears fails if koordlet grows while it ticks so often.
func (n *governed) bears(t *testing.T, ticks float64) {
	t.Helper()
	first := n.vitals(t)
	n.ticksTo(t, n.ticked(t)+ticks)
	last := n.vitals(t)
	t.Logf("descriptors, goroutines, KiB: %v, and %v after %v ticks", first, last, ticks)
	for i, more := range [...]int{4, 4, 4 << 10} {
		if last[i] > first[i]+more {
			t.Errorf("descriptors, goroutines, KiB: %v, and %v after %v ticks", first, last, ticks)
		}
	}
}
