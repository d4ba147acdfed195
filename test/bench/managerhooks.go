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
	"slices"
	"sync"
	"time"
)

// profiles are ClusterColocationProfiles that a pod is compared with; one selects it.
const profiles = 20

// hookPaths are what a new pod goes through.
var hookPaths = [...]string{"/mutate-pod", "/validate-pod"}

// webhooks asks those of our manager in a cluster whose nodes do not report meanwhile: on a machine of two
// cores the API server would take more than half of them, and what was timed would be the wait for it.
func (b *bench) webhooks(ctx context.Context, r *report) (err error) {
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
	return w.hooks(ctx, r)
}

// hooks sends pods to the webhooks as the API server does, at a steady rate whatever the answers take, and times them from outside: TLS,
// both copies of the pod and the wait for a processor are in it.
func (w *world) hooks(ctx context.Context, r *report) (err error) {
	for i := range profiles {
		if _, err := w.cluster.Admin().Apply(ctx, "bench", true, fmt.Appendf(nil, profileText, i, i)); err != nil {
			return err
		}
	}
	cmd, at, err := w.b.ourManager(w.cluster, "webhook")
	if err != nil {
		return err
	}
	p, err := w.start("webhook", cmd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	// Whom the certificate is for is no matter here.
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
	}}
	defer client.CloseIdleConnections()
	o := w.b.o.manager
	if err := eventually(ctx, time.Minute, 200*time.Millisecond, func() error {
		_, err := review(ctx, client, at[2], 0)
		return err
	}); err != nil {
		return fmt.Errorf("%w; end of the log of %s:\n%s", err, p.name, p.tail())
	}
	w.b.say("webhooks: %d pods", o.hooks)
	before, err := usedBy(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	begin := time.Now()
	seconds, err := o.reviews(ctx, func(ctx context.Context, i int) ([len(hookPaths)]float64, error) {
		return review(ctx, client, at[2], i)
	})
	if err != nil {
		return err
	}
	length := time.Since(begin)
	used, err := spentSince(p.cmd.Process.Pid, before, length)
	if err != nil {
		return err
	}
	tellHooks(r, o, seconds, float64(o.hooks)/length.Seconds(), used)
	inside, err := scrape(ctx, "", "http://"+at[0]+"/metrics", "koord_manager_webhook_seconds", "webhook", func(map[string]string) bool { return true })
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(inside)) {
		if inside[name].count < uint64(o.hooks) {
			continue // of what is not asked
		}
		text := fmt.Sprintf("%s (p50 %s)", took(inside[name].quantile(0.99)), took(inside[name].quantile(0.5)))
		r.judge("webhook "+name+" inside, p99", "≤ 5 ms", text, inside[name].within(hookGoal) >= 0.99)
		r.note("inside koord-manager, %s: %s", name, inside[name].line())
	}
	return nil
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

// tellHooks judges the webhooks.
func tellHooks(r *report, o managerOptions, seconds [len(hookPaths)]sample, rate float64, used spent) {
	for n, path := range hookPaths {
		s := seconds[n].sorted()
		p99 := s.quantile(0.99)
		text := fmt.Sprintf("%s (p50 %s, max %s of %d)", took(p99), took(s.median()), took(s.quantile(1)), len(s))
		r.judge("webhook "+path+", p99", "≤ 5 ms", text, p99 <= hookGoal)
		r.note("webhook %s from outside: %s", path, seconds[n].line())
	}
	r.tell("pods a second, CPU, memory", "%.0f of %d wanted, %.2f of a core, %s", rate, o.hookRate, used.cores, used.memory)
}
