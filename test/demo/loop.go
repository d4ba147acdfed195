// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// suppression is what the strategy file says beside strategyFile while koordlet runs.
const suppression = `  resourceUsedThresholdWithBE: {enable: true, cpuSuppressThresholdPercent: 65, cpuSuppressPolicy: cfsQuota}
`

// Figures of the loop.
const (
	// every is between two samples; the phases are counted in them. A phase that does not come to its end ends with most: where a
	// hypervisor gives a machine few of its CPUs, LS pods wait for them longer than the load lasts. What the kernel's pressure
	// trigger took on cgroup v2 comes back after ten calm seconds, in steps as ever.
	every     = 500 * time.Millisecond
	calmFor   = 8
	loadFor   = 16
	returnFor = settling
	most      = 160
	mostLent  = 220
	// room is the part of the node that BE must be allowed before the load comes: with less there is nothing to yield.
	room = 0.15
)

// loopPods are an LS pod that burns CPU while /tmp/load exists in its container, with a request of half the node, and a BE
// pod that would burn all of it.
func loopPods(cpus int) (ls, be kubelet.Pod) {
	half := max(cpus/2, 1)
	ls = kubelet.Pod{
		Name: "front", UID: "de300000-0000-4000-8000-000000000011",
		Labels: map[string]string{"koordinator.sh/qosClass": "LS"},
		Containers: []kubelet.Container{{
			Name: "serve", Resources: kubelet.Resources{Requests: quantities(strconv.Itoa(half), "16Mi")},
			Command: []string{"/bin/sh", "-c", `while :; do
  while [ ! -e /tmp/load ]; do sleep 0.2; done
  i=0; while [ $i -lt ` + strconv.Itoa(half) + ` ]; do (while [ -e /tmp/load ]; do :; done) & i=$((i+1)); done
  wait
done`},
		}},
	}
	be = kubelet.Pod{
		Name: "batch", UID: "de300000-0000-4000-8000-000000000012",
		Labels: map[string]string{"koordinator.sh/qosClass": "BE"},
		Containers: []kubelet.Container{{
			Name:    "crunch",
			Command: []string{"/bin/sh", "-c", `i=0; while [ $i -lt ` + strconv.Itoa(cpus) + ` ]; do (while :; do :; done) & i=$((i+1)); done; wait`},
		}},
	}
	return ls, be
}

// loop shows the closed loop: load comes to the LS pod and the best-effort class yields, the load goes and it gets back
// what it had.
func (d *demo) loop(ctx context.Context, m machine) error {
	d.screen.title("6. koordlet: load comes, best effort yields, load goes")
	n := len(m.cpus)
	if n < 2 {
		d.screen.line("  This machine has one CPU: the load, the work that should yield and the demo itself would share it, and the figures would")
		d.screen.line("  say nothing. Not shown; two CPUs are enough.")
		return nil
	}
	front, batch := loopPods(n)
	ls, err := d.kube.StartPod(ctx, front)
	if err != nil {
		return fmt.Errorf("start pod %s: %w", front.Name, err)
	}
	be, err := d.kube.StartPod(ctx, batch)
	if err != nil {
		return fmt.Errorf("start pod %s: %w", batch.Name, err)
	}
	meter, err := newMeter(d.kube, d.tree, ls, be)
	if err != nil {
		return err
	}
	if err := d.startAgent(ctx); err != nil {
		return err
	}
	enough := float64(n) * room
	calm, err := d.decided(ctx, meter, enough)
	if err != nil {
		return err
	}
	d.step("koordlet runs beside koord-nri: LS, BE and system may use 65 %% of %d CPUs together; %s of BE's class is %s CPUs",
		n, meter.quotaFile(), amount(calm))
	if calm < enough {
		d.screen.line("  Other programs use this machine: BE has next to nothing before any load comes, so it has nothing to yield.")
		d.screen.line("  Not shown; try again when the machine is quiet.")
		return d.endLoop(ctx, ls, be)
	}
	rec, err := d.record(ctx, meter, &recording{enough: enough}, who{"front/serve (LS)", ls.Containers["serve"]}, max(n/2, 1))
	if err != nil {
		return err
	}
	d.report(ctx, rec, meter)
	if err := d.judged(rec); err != nil {
		return err
	}
	return d.endLoop(ctx, ls, be)
}

// startAgent starts koordlet beside koord-nri, without kubelet and API server, on a strategy file of its own: by cfsQuota
// the pods of part 2 would lose the quota that is shown there.
func (d *demo) startAgent(ctx context.Context) error {
	rules, err := d.file("koordlet-strategy.yaml", strategyFile+suppression)
	if err != nil {
		return err
	}
	config, err := d.config("koordlet", "KoordletConfig", map[string]any{
		"strategyFile": rules, "runtimeEndpoint": "unix://" + d.host.Socket, "evict": map[string]any{"mode": "off"},
		"kubelet": map[string]any{"endpoint": ""}, "apiServer": map[string]any{"mode": "off"},
	})
	if err != nil {
		return err
	}
	if d.agent, err = launch("koordlet", filepath.Join(d.dir, "koord", "koordlet.log"), "--config", config); err != nil {
		return err
	}
	return d.agent.ready(ctx, d.runDir(), func(s *status.Status) bool { return !s.ConnectedSince.IsZero() })
}

// decided waits until the class has a quota of at least enough, and returns what it has; after a while also with less.
func (d *demo) decided(ctx context.Context, m *meter, enough float64) (float64, error) {
	var may float64
	var unread error
	begun := time.Now()
	_ = poll(ctx, time.Minute, func() error {
		may, unread = m.allowed()
		if d.agent.ended() || unread == nil && !math.IsInf(may, 1) && (may >= enough || time.Since(begun) > 15*time.Second) {
			return nil
		}
		return errors.New("not yet")
	}) // what it is in the end is looked at here
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case d.agent.ended():
		return 0, fmt.Errorf("koordlet ended: %s", d.agent.tail())
	case unread != nil:
		return 0, unread
	case math.IsInf(may, 1):
		return 0, fmt.Errorf("koordlet has not set %s of the best-effort class within a minute:\n%s", m.quotaFile(), d.agent.tail())
	}
	return may, nil
}

// who carries the load: a container that burns CPU while /tmp/load exists in it.
type who struct{ name, id string }

// record takes a sample every half second while the load comes and goes.
func (d *demo) record(ctx context.Context, m *meter, r *recording, ls who, loops int) (*recording, error) {
	_, info, err := d.host.CRI().ContainerStatus(ctx, ls.id)
	if err != nil {
		return nil, err
	}
	flag := filepath.Join("/proc", strconv.Itoa(info.Pid), "root", "tmp", "load")
	m.began = time.Now()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		if d.agent.ended() {
			return nil, fmt.Errorf("koordlet ended: %s", d.agent.tail())
		}
		s, err := m.read()
		if err != nil {
			return nil, err
		}
		r.samples = append(r.samples, s)
		d.screen.live(r.now())
		switch r.next() {
		case loadComes:
			if err := os.WriteFile(flag, nil, 0o600); err != nil {
				return nil, fmt.Errorf("begin the load: %w", err)
			}
			r.came = time.Since(m.began)
			d.step("load comes: %d busy %s in %s", loops, plural(loops, "loop"), ls.name)
		case loadGoes:
			if err := os.Remove(flag); err != nil {
				return nil, fmt.Errorf("end the load: %w", err)
			}
			r.went = time.Since(m.began)
			d.step("load goes")
		case end:
			d.step("BE may use %s CPUs, before the load it was %s", amount(s.may), amount(r.moments()[0].may))
			return r, nil
		case goOn:
		}
	}
}

// now is the last sample in a line.
func (r *recording) now() string {
	s := r.samples[len(r.samples)-1]
	text := fmt.Sprintf("  %5.1f s   LS used %s   BE used %s   BE may use %s", s.at.Seconds(), amount(s.ls), amount(s.be), amount(s.may))
	if r.lends {
		text += "   batch-cpu " + amount(s.lent)
	}
	return text + " CPUs"
}

// change is what happens after a sample.
type change int

const (
	goOn change = iota
	loadComes
	loadGoes
	end
)

// next says what happens now: the load comes after a calm while, goes when BE has yielded and everybody has seen it, and the
// recording ends when BE has had its share again for a moment. What the node lends follows with the reports of its agent, and is
// waited for too.
func (r *recording) next() change {
	last := r.samples[len(r.samples)-1].at
	yielded, returned := r.reactions()
	most, seen := most, time.Duration(0)
	if r.lends {
		lower, again := r.lending()
		yielded, returned, most, seen = later(yielded, lower), later(returned, again), mostLent, settling*every
	}
	switch n := len(r.samples); {
	case r.came == 0:
		if n >= calmFor {
			return loadComes
		}
	case r.went == 0:
		if n -= r.index(r.came); n >= loadFor && yielded != 0 && last >= r.came+yielded+seen || n >= most {
			return loadGoes
		}
	default:
		if n -= r.index(r.went); returned != 0 && last >= r.went+returned+returnFor*every || n >= most {
			return end
		}
	}
	return goOn
}

// later is when both have happened, 0 before that.
func later(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// report draws what was recorded and tells what was decided, and why.
func (d *demo) report(ctx context.Context, r *recording, m *meter) {
	text := fmt.Sprintf("CPUs, read twice a second: %s of pods %s, %s of kubepods/besteffort", m.usageFile(), m.pods, m.quotaFile())
	if r.lends {
		text += ", the node's batch-cpu from the API server"
	}
	d.screen.line("\n  %s", d.screen.paint(bold, text))
	r.plot(d.screen)
	d.screen.line("")
	r.table(d.screen)
	d.screen.line("")
	yielded, returned := r.reactions()
	text = fmt.Sprintf("BE was allowed less %.1f s after the load came. ", yielded.Seconds())
	if returned != 0 {
		text += fmt.Sprintf("It had nine tenths again %.1f s after the load went: less at once, more by a tenth of the node a second.", returned.Seconds())
	} else {
		text += "It does not have nine tenths again yet."
	}
	d.sentence(text)
	if r.lends {
		d.sentence(r.lentText())
	}
	calm, now := r.others()
	d.sentence(fmt.Sprintf("All other programs used %.2f CPUs before the load and %.2f after it, as /proc/stat tells.", calm, now))
	if why := d.why(ctx, m.began.Add(r.came), m.began.Add(r.went)); why != "" {
		d.sentence("The decision under the load, from koordlet's /events: " + why)
	}
}

// sentence prints a text that may be long, as the locale allows.
func (d *demo) sentence(text string) {
	text = d.screen.pick(text, strings.NewReplacer("µ", "u", "×", "x", "≥", ">=", "−", "-").Replace(text))
	for _, l := range wrap(text, min(d.screen.width, defaultWidth)-2) {
		d.screen.line("  %s", l)
	}
}

// why is the reason of the smallest quota that the best-effort class got between two moments, from the ledger as koordlet's
// /events tells it; empty when it does not tell.
func (d *demo) why(ctx context.Context, from, to time.Time) string {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", d.metrics("koordlet"))
		},
		DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://koordlet/events?size=2048&since=5m", nil)
	if err != nil {
		return ""
	}
	resp, err := client.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	return smallest(resp.Body, from, to)
}

// smallest finds that reason in lines of records. Where nothing was decided in that time it is that of what stood as it began: others may have
// taken all of it before.
func smallest(lines io.Reader, from, to time.Time) string {
	why, least := "", int64(math.MaxInt64)
	stood, since := "", time.Time{}
	in := bufio.NewScanner(lines)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var r journal.Record
		if json.Unmarshal(in.Bytes(), &r) != nil || r.Knob != plan.CPUQuota.String() || r.Target.Level != plan.LevelQoS {
			continue
		}
		quota, err := strconv.ParseInt(r.Want, 10, 64)
		switch {
		case err != nil || quota <= 0:
		case r.Time.After(from):
			if quota < least && r.Time.Before(to) {
				why, least = r.Reason, quota
			}
		case r.Time.After(since):
			stood, since = r.Reason, r.Time
		}
	}
	return cmp.Or(why, stood)
}

// endLoop stops koordlet and the pods. What it has set stays without it; the class' quota is taken back for whoever goes on
// looking around.
func (d *demo) endLoop(ctx context.Context, pods ...*kubelet.Running) error {
	if !d.hold {
		return nil // close does it
	}
	if _, err := d.file("koordlet-strategy.yaml", strategyFile); err != nil {
		return err
	}
	class := filepath.Dir(d.kube.PodDir(pods[len(pods)-1], "cpu"))
	m := &meter{tree: d.tree, class: class}
	err := poll(ctx, time.Minute, func() error {
		may, err := m.allowed()
		if err == nil && !math.IsInf(may, 1) {
			err = fmt.Errorf("koordlet has not taken %s of the best-effort class back", m.quotaFile())
		}
		return err
	})
	if err != nil {
		return err
	}
	d.step("the strategy file no longer asks for suppression: koordlet has taken the quota back")
	return errors.Join(d.agent.stop(), d.stop(ctx, pods))
}
