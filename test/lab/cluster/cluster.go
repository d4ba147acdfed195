// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package cluster runs a real control plane and real kubelets on this machine: etcd,
// kube-apiserver with RBAC on loopback, and any number of kubelets on any CRI socket.
//
// Input: a folder, parts of package parts, CRI sockets. Output: a Cluster with small REST
// clients for any user, kubeconfig files, kubectl, and Kubelets that can be killed and
// started again. Every process dies with this one. Put the folder below a host.Host's,
// and the removal of a stale host covers its mounts and control groups too. It must not
// import any package under test.
package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// Options of a Cluster.
type Options struct {
	Dir           string          // required: a folder for this cluster alone; made if absent, removed by Close
	Cache         *parts.Cache    // optional; default parts.Open with progress on standard error
	FeatureGates  map[string]bool // optional: of the API server
	APIServerArgs []string        // optional: more flags, after ours
	Limit         time.Duration   // optional: how long the API server, and each kubelet, may take to start; default 3 minutes
}

// Cluster is a running control plane.
type Cluster struct {
	Dir string // folder
	URL string // https://127.0.0.1:PORT
	CA  string // file with the CA of all serving certificates

	cache     *parts.Cache
	options   Options
	ca        *authority
	token     string // of the administrator, group system:masters
	etcd      *process
	api       *process
	apiPort   int
	etcdPort  int
	admin     *Client
	clients   []*Client
	processes []*process // other components
}

// serviceRange is the range of service addresses; nothing routes it.
const serviceRange = "10.96.0.0/16"

// Start starts etcd and the API server and waits until it says ready. On error
// nothing is left behind.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Dir == "" {
		return nil, errors.New("start cluster: no folder given")
	}
	if o.Limit == 0 {
		o.Limit = 3 * time.Minute
	}
	if o.Cache == nil {
		cache, err := parts.Open(parts.Options{Progress: os.Stderr})
		if err != nil {
			return nil, err
		}
		o.Cache = cache
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	c := &Cluster{Dir: dir, cache: o.Cache, options: o}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := c.startEtcd(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// prepare writes keys, certificates and the token file.
func (c *Cluster) prepare() error {
	if err := os.MkdirAll(c.Dir, 0o711); err != nil {
		return fmt.Errorf("create cluster folder: %w", err)
	}
	ports, err := lab.FreePorts("127.0.0.1", 2)
	if err != nil {
		return err
	}
	c.etcdPort, c.apiPort = ports[0], ports[1]
	c.URL = "https://127.0.0.1:" + strconv.Itoa(c.apiPort)
	if c.ca, err = newAuthority(); err != nil {
		return err
	}
	c.CA = c.file("ca.crt")
	if err := os.WriteFile(c.CA, c.ca.pem, 0o644); err != nil {
		return fmt.Errorf("write CA: %w", err)
	}
	serving, err := c.ca.server("kube-apiserver", "127.0.0.1", "localhost", "kubernetes.default.svc", "10.96.0.1")
	if err != nil {
		return err
	}
	if err := serving.write(c.file("apiserver")); err != nil {
		return err
	}
	toKubelet, err := c.ca.client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return err
	}
	if err := toKubelet.write(c.file("kubelet-client")); err != nil {
		return err
	}
	_, sa, err := newKey()
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.file("sa.key"), sa, 0o600); err != nil {
		return fmt.Errorf("write service account key: %w", err)
	}
	var secret [16]byte
	rand.Read(secret[:]) // never fails: crypto/rand
	c.token = hex.EncodeToString(secret[:])
	line := c.token + ",admin,admin,\"system:masters\"\n"
	if err := os.WriteFile(c.file("tokens.csv"), []byte(line), 0o600); err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	c.admin, err = newClient(c.URL, c.ca, c.token, nil)
	return err
}

func (c *Cluster) file(name string) string { return filepath.Join(c.Dir, name) }

// startEtcd starts etcd. The API server waits for it, so it is not waited for here.
func (c *Cluster) startEtcd(ctx context.Context) error {
	bin, err := c.cache.File(ctx, parts.Etcd, "etcd")
	if err != nil {
		return err
	}
	url := "http://127.0.0.1:" + strconv.Itoa(c.etcdPort)
	peer := "http://127.0.0.1:0" // one member: nobody calls it
	c.etcd, err = startProcess(c.file("etcd.log"), bin, "--data-dir="+c.file("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+url, "--advertise-client-urls="+url, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls=http://127.0.0.1:1", "--initial-cluster=default=http://127.0.0.1:1", "--log-level=warn")
	return err
}

// StartAPIServer starts an API server that was ended, on the same port and data, and
// waits until it says ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	bin, err := c.cache.File(ctx, parts.KubeAPIServer, "kube-apiserver")
	if err != nil {
		return err
	}
	args := []string{
		"--etcd-servers=http://127.0.0.1:" + strconv.Itoa(c.etcdPort),
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.apiPort), "--endpoint-reconciler-type=none",
		"--tls-cert-file=" + c.file("apiserver.crt"), "--tls-private-key-file=" + c.file("apiserver.key"), "--cert-dir=" + c.Dir,
		"--client-ca-file=" + c.CA, "--token-auth-file=" + c.file("tokens.csv"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--kubelet-certificate-authority=" + c.CA, "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate=" + c.file("kubelet-client.crt"), "--kubelet-client-key=" + c.file("kubelet-client.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=" + serviceRange,
		"--service-account-key-file=" + c.file("sa.key"), "--service-account-signing-key-file=" + c.file("sa.key"),
		"--profiling=false", "--shutdown-delay-duration=0s",
	}
	if len(c.options.FeatureGates) > 0 {
		args = append(args, "--feature-gates="+gateList(c.options.FeatureGates))
	}
	if c.api, err = startProcess(c.file("apiserver.log"), bin, append(args, c.options.APIServerArgs...)...); err != nil {
		return err
	}
	ready, cancel := c.api.alive(ctx, c.options.Limit)
	defer cancel()
	err = poll(ready, "kube-apiserver", func(ctx context.Context) error {
		_, err := c.admin.Text(ctx, "/readyz")
		return err
	})
	if err != nil {
		return c.api.failed(err)
	}
	return nil
}

// EndAPIServer ends the API server: SIGTERM drains, SIGKILL is a crash.
func (c *Cluster) EndAPIServer(sig syscall.Signal) error {
	err := c.api.end(sig, 30*time.Second)
	c.api = nil
	return err
}

// Close ends all processes of the control plane and removes its folder. Kubelets must
// have been closed before.
func (c *Cluster) Close() error {
	var errs []error
	for _, p := range append(c.processes, c.api, c.etcd) {
		errs = append(errs, p.end(syscall.SIGKILL, 10*time.Second)) // its data goes anyway
	}
	c.processes, c.api, c.etcd = nil, nil, nil
	for _, u := range append(c.clients, c.admin) {
		if u != nil {
			u.Close()
		}
	}
	c.clients, c.admin = nil, nil
	errs = append(errs, os.RemoveAll(c.Dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close cluster: %w", err)
	}
	return nil
}

// Pids of etcd and the API server, 0 while one is down.
func (c *Cluster) Pids() (etcd, apiserver int) { return c.etcd.pid(), c.api.pid() }

// Kubectl runs the real kubectl as the administrator and returns its standard output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd, err := c.KubectlCommand(ctx, args...)
	if err != nil {
		return "", err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("run kubectl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// KubectlCommand prepares kubectl as the administrator.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) (*exec.Cmd, error) {
	bin, err := c.cache.File(ctx, parts.Kubectl, "kubectl")
	if err != nil {
		return nil, err
	}
	config := c.file("admin.kubeconfig")
	if _, err := os.Stat(config); err != nil {
		if err := c.writeKubeconfig(config, map[string]any{"token": c.token}); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, bin, append([]string{"--kubeconfig=" + config}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+c.Dir) // its discovery cache goes with the folder
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, nil
}

// StartComponent starts kube-scheduler or kube-controller-manager as the administrator,
// with that configuration and more flags; it ends with the cluster.
func (c *Cluster) StartComponent(ctx context.Context, part string, args ...string) error {
	bin, err := c.cache.File(ctx, part, part)
	if err != nil {
		return err
	}
	config, err := c.Kubeconfig("lab-"+part, "system:masters")
	if err != nil {
		return err
	}
	all := append([]string{"--kubeconfig=" + config, "--leader-elect=false", "--secure-port=0"}, args...)
	if part == parts.KubeControllers {
		all = append(all, "--root-ca-file="+c.CA, "--service-account-private-key-file="+c.file("sa.key"), "--use-service-account-credentials=false")
	}
	p, err := startProcess(c.file(part+".log"), bin, all...)
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	return nil
}
