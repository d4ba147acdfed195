// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// profiles are ClusterColocationProfiles that a pod is compared with; one selects it.
const profiles = 20

// hookPaths are what a new pod goes through.
var hookPaths = [...]string{"/mutate-pod", "/validate-pod"}

// Who answers, beside wayOurs.
const wayBare = "bare"

// hookLeg is one round of pods through the webhooks of one program.
type hookLeg struct {
	who     string
	seconds [len(hookPaths)]sample
	rate    float64
	used    spent
	// reports of nodes a minute meanwhile, 0 for none.
	reports float64
}

// beside says what else happens in a leg.
func (l *hookLeg) beside() string {
	if l.reports == 0 {
		return "no node reports"
	}
	return "nodes report"
}

// webhooks sends pods to those of our manager and to a webhook that looks at nothing, by turns: first while no node reports, then beside the
// reports of all of them, of which an API server on a machine of two cores makes more than half of these busy.
func (b *bench) webhooks(ctx context.Context, r *report) (err error) {
	bare, err := b.build(ctx, "allow", "./test/bench/allow")
	if err != nil {
		return err
	}
	w, err := b.newWorld(ctx, r.name)
	if err != nil {
		return err
	}
	defer func() {
		b.say("webhooks: remove the cluster")
		err = errors.Join(err, w.close())
	}()
	o := b.o.manager
	r.tell("size of the cluster", "%d nodes, %d pods, %d profiles", o.nodes, o.pods, profiles)
	r.note("%d pods to each webhook, %d a second", o.hooks, o.hookRate)
	if err := w.fill(ctx); err != nil {
		return err
	}
	h, err := w.answering(ctx, bare)
	if err != nil {
		return err
	}
	defer h.client.CloseIdleConnections()
	var legs []hookLeg
	turns := func(names ...string) error {
		for _, name := range names {
			l, err := h.leg(ctx, name)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			l.note(r, len(legs)+1)
			legs = append(legs, l)
		}
		return nil
	}
	if err := turns(wayOurs, wayBare); err != nil {
		return err
	}
	inside, err := h.inside(ctx)
	if err != nil {
		return err
	}
	if err := w.nodesReport(ctx); err != nil {
		return err
	}
	if err := turns(wayOurs, wayBare, wayOurs, wayBare); err != nil {
		return err
	}
	tellHooks(r, o, legs)
	tellInside(r, inside, "no node reports")
	later, err := h.inside(ctx)
	if err != nil {
		return err
	}
	tellInside(r, later.since(inside), "nodes report")
	return w.reports.problem()
}

// nodesReport makes the NodeMetric of every node and has all nodes report, until each has done so once.
func (w *world) nodesReport(ctx context.Context) error {
	o := w.b.o.manager
	if err := w.each(ctx, fillers, o.nodes, func(ctx context.Context, i int) error {
		_, err := w.cluster.Admin().Create(ctx, sloPath+"/nodemetrics", cluster.Object{
			"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": map[string]any{"name": nodeName(i)}, "spec": map[string]any{},
		})
		return err
	}); err != nil {
		return fmt.Errorf("make NodeMetrics: %w", err)
	}
	w.b.say("%s: nodes report", w.of)
	w.reports = w.report(ctx)
	return wait(ctx, o.every)
}

// hooks are two programs that answer for webhooks.
type hooks struct {
	w       *world
	client  *http.Client
	at      map[string]string
	p       map[string]*process
	metrics string // our manager's
}

// answering starts both and waits until they answer.
func (w *world) answering(ctx context.Context, bare string) (*hooks, error) {
	for i := range profiles {
		if _, err := w.cluster.Admin().Apply(ctx, "bench", true, fmt.Appendf(nil, profileText, i, i)); err != nil {
			return nil, err
		}
	}
	cmd, at, err := w.b.ourManager(w.cluster, "webhook")
	if err != nil {
		return nil, err
	}
	free, err := cluster.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	// Whom the certificates are for is no matter here.
	h := &hooks{w: w, at: map[string]string{wayOurs: at[2], wayBare: free[0]}, p: map[string]*process{}, metrics: at[0], client: &http.Client{
		Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true},
	}}
	for name, cmd := range map[string]*exec.Cmd{wayOurs: cmd, wayBare: exec.Command(bare, "-listen", free[0])} {
		p, err := w.start(name, cmd)
		if err != nil {
			return nil, err
		}
		h.p[name] = p
		if err := eventually(ctx, time.Minute, 200*time.Millisecond, func() error {
			_, err := review(ctx, h.client, h.at[name], 0)
			return err
		}); err != nil {
			return nil, fmt.Errorf("%w; end of the log of %s:\n%s", err, name, p.tail())
		}
	}
	return h, nil
}

// leg sends pods as the API server does, at a steady rate whatever the answers take, and times them from outside: TLS, both copies of the pod and
// the wait for a processor are in it.
func (h *hooks) leg(ctx context.Context, name string) (l hookLeg, err error) {
	o, pid := h.w.b.o.manager, h.p[name].cmd.Process.Pid
	h.w.b.say("webhooks: %d pods to %s", o.hooks, name)
	before, err := usedBy(pid)
	if err != nil {
		return l, err
	}
	sent := int64(0)
	if h.w.reports != nil {
		sent = h.w.reports.sent.Load()
	}
	begin := time.Now()
	l.who = name
	if l.seconds, err = o.reviews(ctx, func(ctx context.Context, i int) ([len(hookPaths)]float64, error) {
		return review(ctx, h.client, h.at[name], i)
	}); err != nil {
		return l, err
	}
	length := time.Since(begin)
	l.rate = float64(o.hooks) / length.Seconds()
	if h.w.reports != nil {
		l.reports = float64(h.w.reports.sent.Load()-sent) / length.Minutes()
	}
	l.used, err = spentSince(pid, before, length)
	return l, err
}

// inside is our manager's own time for each webhook that was asked.
func (h *hooks) inside(ctx context.Context) (histograms, error) {
	found, err := scrape(ctx, "", "http://"+h.metrics+"/metrics", "koord_manager_webhook_seconds", "webhook", func(map[string]string) bool { return true })
	maps.DeleteFunc(found, func(_ string, x histogram) bool { return x.count < uint64(h.w.b.o.manager.hooks) })
	return found, err
}

// profileText is a profile; that of 7 selects the pods that are sent.
const profileText = `apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: bench-%d}
spec:
  selector: {matchLabels: {bench: "%d"}}
  qosClass: BE
  priorityClassName: koord-batch
  labels: {from: profile}
`

// reviewOf is what the API server sends for a new pod.
func reviewOf(i int) ([]byte, error) {
	pod := simulatedPod(0, 1)
	pod["apiVersion"], pod["kind"] = "v1", "Pod"
	spec, _ := pod["spec"].(map[string]any)
	delete(spec, "nodeName") // it is not placed yet
	meta, _ := pod["metadata"].(map[string]any)
	meta["name"], meta["namespace"], meta["labels"] = fmt.Sprintf("hook-%d", i), namespace, map[string]any{"bench": "7", "app": "hook"}
	return json.Marshal(map[string]any{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"request": map[string]any{
			"uid": fmt.Sprintf("uid-%d", i), "kind": map[string]any{"group": "", "version": "v1", "kind": "Pod"},
			"resource": map[string]any{"group": "", "version": "v1", "resource": "pods"}, "namespace": namespace, "name": meta["name"], "operation": "CREATE",
			"userInfo": map[string]any{"username": "system:serviceaccount:kube-system:replicaset-controller"}, "object": pod,
		},
	})
}

// review sends a pod to both webhooks and returns the seconds that each took.
func review(ctx context.Context, client *http.Client, address string, i int) (out [len(hookPaths)]float64, err error) {
	body, err := reviewOf(i)
	if err != nil {
		return out, err
	}
	for n, path := range hookPaths {
		begin := time.Now()
		answer, err := post(ctx, client, "https://"+address+path, body)
		out[n] = time.Since(begin).Seconds()
		if err == nil {
			err = answer.right(path == hookPaths[0])
		}
		if err != nil {
			return out, fmt.Errorf("%s: %w", path, err)
		}
	}
	return out, nil
}

// answer is what counts of an AdmissionReview.
type answer struct {
	Response struct {
		Allowed  bool
		Patch    []byte
		Warnings []string
		Status   struct{ Message string }
	}
}

// right is an error when a pod of the profile was refused, or not changed where it had to be.
func (a *answer) right(mutated bool) error {
	switch r := a.Response; {
	case !r.Allowed:
		return fmt.Errorf("the pod was refused: %s", r.Status.Message)
	case len(r.Warnings) > 0:
		return fmt.Errorf("the pod came through with warnings: %q", r.Warnings)
	case mutated != bytes.Contains(r.Patch, []byte("batch-cpu")):
		return fmt.Errorf("patch %s", r.Patch)
	}
	return nil
}

func post(ctx context.Context, client *http.Client, url string, body []byte) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.300s", resp.Status, data)
	}
	out := &answer{}
	return out, json.Unmarshal(data, out)
}

// reviews sends pods at the rate, whatever they take, and returns the seconds by webhook.
func (o *managerOptions) reviews(ctx context.Context, one func(ctx context.Context, i int) ([len(hookPaths)]float64, error)) ([len(hookPaths)]sample, error) {
	var mu sync.Mutex
	var out [len(hookPaths)]sample
	var errs []error
	var all sync.WaitGroup
	begin := time.Now()
	for i := range o.hooks {
		if err := wait(ctx, time.Until(begin.Add(time.Duration(i)*time.Second/time.Duration(o.hookRate)))); err != nil {
			errs = append(errs, err)
			break
		}
		all.Go(func() {
			took, err := one(ctx, i)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			for n := range out {
				out[n] = append(out[n], took[n])
			}
		})
	}
	all.Wait()
	if len(errs) > 0 {
		return out, fmt.Errorf("%d of %d pods failed, the first one: %w", len(errs), o.hooks, errs[0])
	}
	return out, nil
}

// note writes the leg into the raw file.
func (l *hookLeg) note(r *report, number int) {
	r.note("leg %d: %s, %s (%.0f a minute): %.0f pods a second, %.2f of a core, %s", number, l.who, l.beside(), l.reports, l.rate, l.used.cores, l.used.memory)
	for n, path := range hookPaths {
		r.note("       %s from outside: %s", path, l.seconds[n].sorted().line())
	}
}

// tellHooks judges our legs, the worst of them, beside the bare ones.
func tellHooks(r *report, o managerOptions, legs []hookLeg) {
	for _, beside := range []string{"no node reports", "nodes report"} {
		var ours, bare []hookLeg
		for _, l := range legs {
			switch {
			case l.beside() != beside:
			case l.who == wayOurs:
				ours = append(ours, l)
			default:
				bare = append(bare, l)
			}
		}
		for n, path := range hookPaths {
			say := func(l hookLeg) (string, bool) {
				s := l.seconds[n].sorted()
				p99 := s.quantile(0.99)
				return fmt.Sprintf("%s (p50 %s, max %s of %d)", took(p99), took(s.median()), took(s.quantile(1)), len(s)), p99 <= hookGoal
			}
			tellLegs(r, "webhook "+path+", "+beside+", p99", ours, nil, "≤ 5 ms", say)
			var texts []string
			for _, l := range bare {
				text, _ := say(l)
				texts = append(texts, text)
			}
			r.tell("webhook "+path+", "+beside+", p99, one that looks at nothing", "%s", strings.Join(texts, "; "))
		}
		tellLegs(r, "pods a second, CPU, memory, "+beside, ours, nil, "", func(l hookLeg) (string, bool) {
			return fmt.Sprintf("%.0f of %d wanted, %.2f of a core, %s", l.rate, o.hookRate, l.used.cores, l.used.memory), true
		})
	}
}

// tellInside judges what our manager has measured of itself.
func tellInside(r *report, inside histograms, beside string) {
	for _, name := range slices.Sorted(maps.Keys(inside)) {
		x := inside[name]
		text := fmt.Sprintf("%s (p50 %s, %s ≤ 5 ms)", took(x.quantile(0.99)), took(x.quantile(0.5)), percent(x.within(hookGoal)))
		r.judge("webhook "+name+" inside, "+beside+", p99", "≤ 5 ms", text, x.within(hookGoal) >= 0.99)
		r.note("inside koord-manager, %s, %s: %s", name, beside, x.line())
	}
}
