// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Admin is the client of a member of system:masters.
func (c *Cluster) Admin() *Client { return c.admin }

// As returns a client of any user, shown by a certificate the API server trusts.
func (c *Cluster) As(user string, groups ...string) (*Client, error) {
	p, err := c.ca.client(user, groups...)
	if err != nil {
		return nil, err
	}
	client, err := newClient(c.URL, c.ca, "", &p)
	if err != nil {
		return nil, err
	}
	c.clients = append(c.clients, client)
	return client, nil
}

// WithToken returns a client that shows a bearer token, as of a service account.
func (c *Cluster) WithToken(token string) (*Client, error) {
	client, err := newClient(c.URL, c.ca, token, nil)
	if err != nil {
		return nil, err
	}
	c.clients = append(c.clients, client)
	return client, nil
}

// Kubeconfig writes a kubeconfig file of any user and returns its path.
func (c *Cluster) Kubeconfig(user string, groups ...string) (string, error) {
	p, err := c.ca.client(user, groups...)
	if err != nil {
		return "", err
	}
	base := c.file("user-" + strings.NewReplacer(":", "-", "/", "-").Replace(user))
	if err := p.write(base); err != nil {
		return "", err
	}
	path := base + ".kubeconfig"
	return path, c.writeKubeconfig(path, map[string]any{"client-certificate": base + ".crt", "client-key": base + ".key"})
}

func (c *Cluster) writeKubeconfig(path string, user map[string]any) error {
	data, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "lab",
		"clusters": []any{map[string]any{"name": "lab", "cluster": map[string]any{"server": c.URL, "certificate-authority": c.CA}}},
		"users":    []any{map[string]any{"name": "lab", "user": user}},
		"contexts": []any{map[string]any{"name": "lab", "context": map[string]any{"cluster": "lab", "user": "lab"}}},
	})
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// Namespace makes a namespace with what the controller manager would put into it:
// the service account "default" and the CA that pods' tokens come with.
func (c *Cluster) Namespace(ctx context.Context, name string) error {
	for _, o := range []struct {
		path   string
		object Object
	}{
		{"/api/v1/namespaces", Object{"metadata": map[string]any{"name": name}}},
		{"/api/v1/namespaces/" + name + "/serviceaccounts", Object{"metadata": map[string]any{"name": "default"}}},
		{"/api/v1/namespaces/" + name + "/configmaps", Object{
			"metadata": map[string]any{"name": "kube-root-ca.crt"}, "data": map[string]any{"ca.crt": string(c.ca.pem)},
		}},
	} {
		if _, err := c.admin.Create(ctx, o.path, o.object); err != nil && !Refused(err, "AlreadyExists") {
			return fmt.Errorf("make namespace %s: %w", name, err)
		}
	}
	return nil
}

// gateList is Name=true,Other=false.
func gateList(gates map[string]bool) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		out = append(out, name+"="+strconv.FormatBool(gates[name]))
	}
	return strings.Join(out, ",")
}
