// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab"
)

// Where koord-manager lives, and who it is: the service account of packaging/manifests, here by a certificate.
const (
	ManagerNamespace = "koordinator-system"
	ManagerUser      = "system:serviceaccount:" + ManagerNamespace + ":koord-manager"
)

// strategies lists the ConfigMaps of that namespace.
const strategies = "/api/v1/namespaces/" + ManagerNamespace + "/configmaps"

// InstallManager applies what a folder such as packaging/manifests gives koord-manager: its account, priority classes and roles. Its pods
// and webhooks are left out: it runs as a process beside the cluster.
func (c *Cluster) InstallManager(ctx context.Context, dir string) error {
	if err := c.Namespace(ctx, ManagerNamespace); err != nil {
		return err
	}
	account := Object{"metadata": map[string]any{"name": "koord-manager"}}
	if _, err := c.admin.Create(ctx, "/api/v1/namespaces/"+ManagerNamespace+"/serviceaccounts", account); err != nil && !Refused(err, "AlreadyExists") {
		return fmt.Errorf("make koord-manager's account: %w", err)
	}
	roles, err := managerRoles(dir)
	if err != nil {
		return err
	}
	for _, file := range append(roles, filepath.Join(dir, "priorityclasses.yaml")) {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("install koord-manager: %w", err)
		}
		if _, err := c.admin.Apply(ctx, "lab", false, text); err != nil {
			return fmt.Errorf("apply %s: %w", file, err)
		}
	}
	return nil
}

// managerRoles are the files of koord-manager's roles. The agent's is left out: see InstallAgent.
func managerRoles(dir string) ([]string, error) {
	roles, err := filepath.Glob(filepath.Join(dir, "rbac-*.yaml"))
	roles = slices.DeleteFunc(roles, func(file string) bool { return filepath.Base(file) == "rbac-koordlet.yaml" })
	if err != nil || len(roles) == 0 {
		return nil, fmt.Errorf("install koord-manager: no roles in %s, %v", dir, err)
	}
	return roles, nil
}

// ManagerFlags are those of a koord-manager beside the cluster that serves metrics, probes and webhooks on these addresses of loopback.
func (c *Cluster) ManagerFlags(metrics, health, hooks string) ([]string, error) {
	kubeconfig, err := c.Kubeconfig(ManagerUser, "system:serviceaccounts", "system:serviceaccounts:"+ManagerNamespace)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(hooks)
	if err != nil {
		return nil, fmt.Errorf("address of koord-manager's webhooks: %w", err)
	}
	return []string{
		"--kubeconfig=" + kubeconfig, "--metrics-addr=" + metrics, "--health-probe-addr=" + health,
		"--webhook-host=" + host, "--webhook-port=" + port, "--webhook-cert-hosts=" + host,
	}, nil
}

// FreeAddresses are addresses of loopback that nobody listens on.
func FreeAddresses(n int) ([]string, error) {
	ports, err := lab.FreePorts("127.0.0.1", n)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, p := range ports {
		out = append(out, fmt.Sprintf("127.0.0.1:%d", p))
	}
	return out, nil
}

// HookManager makes the webhook configurations of a manifest, by which the API server calls an address: nothing routes Services here. It
// waits until koord-manager has put its authority into all of them.
func (c *Cluster) HookManager(ctx context.Context, manifest, address string) error {
	text, err := os.ReadFile(manifest)
	if err != nil {
		return fmt.Errorf("hook koord-manager: %w", err)
	}
	var made []string
	for doc := range strings.SplitSeq(string(text), "\n---") {
		o, err := ParseObject([]byte(doc))
		if err != nil {
			return fmt.Errorf("hook koord-manager: %s: %w", manifest, err)
		}
		if callByURL(o, address) == 0 {
			continue
		}
		at, err := c.admin.Path(ctx, o)
		if err != nil {
			return err
		}
		if _, err := c.admin.Create(ctx, path.Dir(at), o); err != nil {
			return fmt.Errorf("hook koord-manager: %w", err)
		}
		made = append(made, at)
	}
	// The manager looks every five seconds for configurations that are not there, and every half minute for those that are.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for _, at := range made {
		err := poll(ctx, "authority of "+path.Base(at), func(ctx context.Context) error {
			o, err := c.admin.Get(ctx, at)
			if err != nil {
				return err
			}
			return trusted(o)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// callByURL has an address called instead of a Service, and returns of how many webhooks.
func callByURL(o Object, address string) int {
	list, _ := o["webhooks"].([]any)
	for i := range list {
		config, _ := o.At("webhooks", i, "clientConfig").(map[string]any)
		config["url"] = "https://" + address + o.Str("webhooks", i, "clientConfig", "service", "path")
		delete(config, "service")
	}
	return len(list)
}

// trusted is an error while a webhook has no authority.
func trusted(o Object) error {
	list, _ := o["webhooks"].([]any)
	if len(list) == 0 {
		return errors.New("no webhooks")
	}
	for i := range list {
		if o.Str("webhooks", i, "clientConfig", "caBundle") == "" {
			return fmt.Errorf("%s has no caBundle", o.Str("webhooks", i, "name"))
		}
	}
	return nil
}

// TellManager changes keys of slo-controller-config; "" removes one.
func (c *Cluster) TellManager(ctx context.Context, keys map[string]string) error {
	data := map[string]any{}
	for key, value := range keys {
		data[key] = value
		if value == "" {
			data[key] = nil
		}
	}
	const name = "slo-controller-config"
	_, err := c.admin.Patch(ctx, strategies+"/"+name, MergePatch, map[string]any{"data": data})
	if Refused(err, "NotFound") {
		maps.DeleteFunc(data, func(_ string, v any) bool { return v == nil })
		_, err = c.admin.Create(ctx, strategies, Object{"metadata": map[string]any{"name": name}, "data": data})
	}
	if err != nil {
		return fmt.Errorf("change %s: %w", name, err)
	}
	return nil
}
