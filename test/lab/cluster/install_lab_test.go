// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// installed is an empty cluster into which the guide's command puts koord-manager.
type installed struct {
	c    *cluster.Cluster
	text string           // of make manifests
	all  []cluster.Object // in it
	ip   string           // an address of this machine that API servers call
}

const labImage = "registry.example/koord-manager:lab"

// checkInstall: what make manifests prints installs koord-manager by the command of the guide, once and again. What it says of the
// program is so: started as its Deployment says, by its account, it leads, answers its probes, and is called by its Service.
func checkInstall(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	i := &installed{c: c, text: render(ctx, t), ip: reachable(t)}
	for doc := range strings.SplitSeq("\n"+i.text, "\n---\n") {
		o, err := cluster.ParseObject([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		if len(o) > 0 {
			i.all = append(i.all, o)
		}
	}
	i.complete(t)
	i.apply(ctx, t)
	i.established(ctx, t)
	before := i.versions(ctx, t)
	i.apply(ctx, t)
	for path, version := range i.versions(ctx, t) {
		if before[path] != version {
			t.Errorf("%s was changed by the same apply again", path)
		}
	}
	pod := i.deployed(ctx, t)
	r := i.run(ctx, t, pod)
	i.apply(ctx, t) // over what the program has written meanwhile
	i.works(ctx, t)
	if text := read(t, r.log); strings.Contains(text, "forbidden") {
		t.Errorf("its account lacks a right:\n%s", text)
	}
}

// render runs make as a user does: what an outer make tells its children is not meant.
func render(ctx context.Context, t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, "make", "-s", "manifests", "IMAGE="+labImage)
	cmd.Dir = "../../.."
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"}, name)
	})
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("make manifests: %v: %s", err, stderr.String())
	}
	return string(out)
}

func identity(o cluster.Object) string {
	return o.Str("kind") + " " + o.Str("metadata", "namespace") + "/" + o.Str("metadata", "name")
}

// complete: every object of the two folders is printed, once.
func (i *installed) complete(t *testing.T) {
	t.Helper()
	left := map[string]bool{}
	for _, folder := range []string{"crds", "manifests"} {
		files, err := filepath.Glob("../../../packaging/" + folder + "/*.yaml")
		if err != nil || len(files) < 5 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			for doc := range strings.SplitSeq("\n"+read(t, file), "\n---\n") {
				if o, err := cluster.ParseObject([]byte(doc)); err != nil {
					t.Fatal(err)
				} else if len(o) > 0 {
					left[identity(o)] = true
				}
			}
		}
	}
	for _, o := range i.all {
		if !left[identity(o)] {
			t.Errorf("printed twice, or out of no file: %s", identity(o))
		}
		delete(left, identity(o))
	}
	for name := range left {
		t.Errorf("not printed: %s", name)
	}
}

// apply is the command of docs/user/manager.md; kubectl's validation is strict where nothing is said.
func (i *installed) apply(ctx context.Context, t *testing.T) {
	t.Helper()
	cmd, err := i.c.KubectlCommand(ctx, "apply", "--server-side", "-f", "-")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = strings.NewReader(i.text)
	out, err := cmd.CombinedOutput()
	if n := strings.Count(string(out), " serverside-applied\n"); err != nil || n != len(i.all) || strings.Contains(string(out), "Warning") {
		t.Fatalf("%d of %d objects applied, %v:\n%s", n, len(i.all), err, out)
	}
}

func (i *installed) path(ctx context.Context, t *testing.T, o cluster.Object) string {
	t.Helper()
	path, err := i.c.Admin().Path(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// established waits until nothing is written about the definitions any more: of the community's groups it is said, too, whether they are approved.
func (i *installed) established(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, o := range i.all {
		if o.Str("kind") != "CustomResourceDefinition" {
			continue
		}
		_, err := i.c.Admin().Wait(ctx, i.path(ctx, t, o), identity(o), func(o cluster.Object) bool {
			approval := !strings.HasSuffix(o.Str("spec", "group"), ".k8s.io") || o.Condition("KubernetesAPIApprovalPolicyConformant") != ""
			return o.Condition("Established") == "True" && o.Condition("NamesAccepted") == "True" && approval
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// versions are the resource versions of all that was applied.
func (i *installed) versions(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, o := range i.all {
		path := i.path(ctx, t, o)
		got, err := i.c.Admin().Get(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		out[path] = got.Str("metadata", "resourceVersion")
	}
	return out
}

// only is the one object of a kind, as it is stored.
func (i *installed) only(ctx context.Context, t *testing.T, kind string) cluster.Object {
	t.Helper()
	at := slices.IndexFunc(i.all, func(o cluster.Object) bool { return o.Str("kind") == kind })
	if at < 0 {
		t.Fatalf("no %s", kind)
	}
	o, err := i.c.Admin().Get(ctx, i.path(ctx, t, i.all[at]))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// deployed is the Deployment's pod, which the API server must take as it is, and which the Service and the budget must be about.
func (i *installed) deployed(ctx context.Context, t *testing.T) cluster.Object {
	t.Helper()
	template, _ := i.only(ctx, t, "Deployment").At("spec", "template").(map[string]any)
	meta, _ := template["metadata"].(map[string]any)
	meta["name"] = "koord-manager-1"
	pod, err := i.c.Admin().Create(ctx, "/api/v1/namespaces/"+system+"/pods?dryRun=All&fieldValidation=Strict", template)
	if err != nil {
		t.Fatalf("a pod by the Deployment's template: %v", err)
	}
	if image := pod.Str("spec", "containers", 0, "image"); image != labImage {
		t.Errorf("image %s, want %s", image, labImage)
	}
	for kind, at := range map[string][]any{"Service": {"spec", "selector"}, "PodDisruptionBudget": {"spec", "selector", "matchLabels"}} {
		selector, _ := i.only(ctx, t, kind).At(at...).(map[string]any)
		for key, value := range selector {
			if pod.At("metadata", "labels", key) != value {
				t.Errorf("%s selects %s=%v, the pod has %s", kind, key, value, pod.Compact("metadata", "labels"))
			}
		}
		if len(selector) == 0 {
			t.Errorf("%s selects nothing", kind)
		}
	}
	return pod
}

// run starts the program by the arguments of a pod, with other addresses in the place of its ports, and as the pod's account. It waits
// until the probes and the port of the Service answer.
func (i *installed) run(ctx context.Context, t *testing.T, pod cluster.Object) *replica {
	t.Helper()
	main := []any{"spec", "containers", 0}
	ports, _ := pod.At(append(main, "ports")...).([]any)
	args, _ := pod.At(append(main, "args")...).([]any)
	free := freeAddresses(t, len(ports))
	at := map[string]string{} // where a port is, by its name and by its number
	var flags []string
	for _, a := range args {
		arg, _ := a.(string)
		flags = append(flags, arg)
	}
	for n := range ports {
		name, number := pod.Str(append(main, "ports", n, "name")...), strconv.Itoa(pod.Int(append(main, "ports", n, "containerPort")...))
		_, port, _ := net.SplitHostPort(free[n])
		at[name], at[number] = net.JoinHostPort(i.ip, port), net.JoinHostPort(i.ip, port)
		said := slices.IndexFunc(flags, func(f string) bool { return strings.HasSuffix(f, "=:"+number) })
		switch {
		case said >= 0:
			flags[said] = strings.TrimSuffix(flags[said], ":"+number) + at[name]
		case name == "webhook" && strings.Contains(usage(ctx, t), `(default "`+number+`")`): // no argument says it
			flags = append(flags, "--webhook-host="+i.ip, "--webhook-port="+port)
		default:
			t.Fatalf("nothing is told to listen on the pod's port %s (%s): %q", number, name, flags)
		}
	}
	r := &replica{log: filepath.Join(t.TempDir(), "manager.log"), metrics: "http://" + at["metrics"] + "/metrics"}
	flags = append(flags, "--kubeconfig="+i.account(ctx, t, pod.Str("spec", "serviceAccountName")))
	r.process = startProgram(t, r.log, bin("koord-manager"), flags...)
	for _, probe := range []string{"livenessProbe", "readinessProbe"} {
		get := append(main, probe, "httpGet")
		port := pod.Str(append(get, "port")...)
		eventually(t, 30*time.Second, func() error { return answers(ctx, "http://"+at[port]+pod.Str(append(get, "path")...)) })
	}
	r.shows(t, 60*time.Second, "koordinator_manager_is_leader 1")
	i.route(ctx, t, at)
	return r
}

// usage is what the program says of its flags.
func usage(ctx context.Context, t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(ctx, bin("koord-manager"), "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("koord-manager --help: %v: %s", err, out)
	}
	_, of, _ := strings.Cut(string(out), "-webhook-port")
	of, _, _ = strings.Cut(of, "\n  -")
	return of
}

func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// account is a kubeconfig with a token of a service account, as a pod of it has one.
func (i *installed) account(ctx context.Context, t *testing.T, name string) string {
	t.Helper()
	ask := cluster.Object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{"expirationSeconds": 3600}}
	o, err := i.c.Admin().Create(ctx, "/api/v1/namespaces/"+system+"/serviceaccounts/"+name+"/token", ask)
	if err != nil {
		t.Fatalf("a token of the pod's account: %v", err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: lab, clusters: [{name: lab, cluster: {server: %q, certificate-authority: %q}}],
  users: [{name: lab, user: {token: %q}}], contexts: [{name: lab, context: {cluster: lab, user: lab}}]}`, i.c.URL, i.c.CA, o.Str("status", "token"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// route says where the Service's one pod is, as the controller manager does in a cluster.
func (i *installed) route(ctx context.Context, t *testing.T, at map[string]string) {
	t.Helper()
	service := i.only(ctx, t, "Service")
	target := service.Str("spec", "ports", 0, "targetPort")
	if target == "" {
		target = strconv.Itoa(service.Int("spec", "ports", 0, "targetPort"))
	}
	_, port, err := net.SplitHostPort(at[target])
	if err != nil {
		t.Fatalf("the Service leads to port %q, which the pod has not: %v", target, err)
	}
	_, err = i.c.Admin().Apply(ctx, "lab", false, fmt.Appendf(nil, `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: webhook, namespace: %s, labels: {kubernetes.io/service-name: %s}}
addressType: IPv4
endpoints: [{addresses: [%s], conditions: {ready: true}}]
ports: [{name: %s, port: %s, protocol: TCP}]
`, system, service.Str("metadata", "name"), i.ip, service.Str("spec", "ports", 0, "name"), port))
	if err != nil {
		t.Fatal(err)
	}
}

// works: the API server calls the webhooks by the Service, trusts them, and a profile changes a pod; a node gets its objects.
func (i *installed) works(ctx context.Context, t *testing.T) {
	t.Helper()
	const given = `
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: installed}
spec: {selector: {matchLabels: {app: spark}}, qosClass: BE, priorityClassName: koord-batch}
---
apiVersion: v1
kind: Node
metadata: {name: installed}
`
	if _, err := i.c.Admin().Apply(ctx, "user", false, []byte(given)); err != nil {
		t.Fatal(err)
	}
	pod := cluster.Object{
		"metadata": map[string]any{"name": "spark", "labels": map[string]any{"app": "spark"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": "i"}}},
	}
	eventually(t, 60*time.Second, func() error {
		o, err := i.c.Admin().Create(ctx, "/api/v1/namespaces/web/pods?dryRun=All", pod)
		if err == nil && (o.Str("metadata", "labels", protocol.LabelQoSClass) != "BE" || o.Int("spec", "priority") != 5000) {
			err = errors.New("the profile is not applied")
		}
		return err
	})
	for _, path := range []string{slos, reports} {
		if _, err := i.c.Admin().Wait(ctx, path+"/installed", "object of the node", func(o cluster.Object) bool { return o != nil }); err != nil {
			t.Error(err)
		}
	}
}
