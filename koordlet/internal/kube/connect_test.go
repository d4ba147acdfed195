// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kube_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/trust"
)

func TestKubeconfig(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: v1\nkind: Config\ncurrent-context: here\ncontexts: [{name: here, context: {cluster: c, user: u}}]\n"
	dir := "/etc/kubernetes"
	for name, c := range map[string]struct {
		in   string
		want kube.Config
		err  string
	}{
		"kubelet's": {head + "clusters: [{name: c, cluster: {server: 'https://10.0.0.1:6443', certificate-authority-data: QQ==}}]\n" +
			"users: [{name: u, user: {client-certificate: /var/lib/kubelet/pki/current.pem, client-key: /var/lib/kubelet/pki/current.pem}}]",
			kube.Config{Server: "https://10.0.0.1:6443", Trust: trust.Options{
				CA: []byte("A"), CertFile: "/var/lib/kubelet/pki/current.pem", KeyFile: "/var/lib/kubelet/pki/current.pem",
			}}, ""},
		"relative paths": {head + "clusters: [{name: c, cluster: {server: 'https://h', certificate-authority: pki/ca.crt, tls-server-name: api}}]\n" +
			"users: [{name: u, user: {tokenFile: token}}]",
			kube.Config{Server: "https://h", Trust: trust.Options{CAFile: dir + "/pki/ca.crt", ServerName: "api", TokenFile: dir + "/token"}}, ""},
		"data before files": {head + "clusters: [{name: c, cluster: {server: 'https://h', certificate-authority: ca.crt, certificate-authority-data: QQ==, insecure-skip-tls-verify: true}}]\n" +
			"users: [{name: u, user: {token: secret}}]",
			kube.Config{Server: "https://h", Trust: trust.Options{CA: []byte("A"), SkipVerify: true, Token: "secret"}}, ""},
		"exec plugin":       {head + "clusters: [{name: c, cluster: {server: 'https://h'}}]\nusers: [{name: u, user: {exec: {command: aws}}}]", kube.Config{}, "exec credential plugins are not supported"},
		"auth provider":     {head + "clusters: [{name: c, cluster: {server: 'https://h'}}]\nusers: [{name: u, user: {auth-provider: {name: gcp}}}]", kube.Config{}, "auth-provider"},
		"password":          {head + "clusters: [{name: c, cluster: {server: 'https://h'}}]\nusers: [{name: u, user: {username: a, password: b}}]", kube.Config{}, "username"},
		"impersonation":     {head + "clusters: [{name: c, cluster: {server: 'https://h'}}]\nusers: [{name: u, user: {as: root}}]", kube.Config{}, "impersonation"},
		"own proxy":         {head + "clusters: [{name: c, cluster: {server: 'https://h', proxy-url: 'http://p'}}]\nusers: [{name: u}]", kube.Config{}, "HTTPS_PROXY"},
		"no such context":   {"current-context: there\ncontexts: []", kube.Config{}, `no current context "there"`},
		"no such cluster":   {head + "users: [{name: u}]", kube.Config{}, `no cluster "c"`},
		"data not base64":   {head + "clusters: [{name: c, cluster: {server: 'https://h', certificate-authority-data: '%'}}]\nusers: [{name: u}]", kube.Config{}, "certificate-authority-data"},
		"not YAML":          {"{", kube.Config{}, "parse"},
		"a list, no config": {"[1]", kube.Config{}, "parse"},
		"a key many times":  {strings.Repeat("a:\n", 1000), kube.Config{}, "duplicate key"},
		"many keys":         {keys(60_000), kube.Config{}, "too large"},
		"a long text":       {strings.Repeat("#", 2<<20), kube.Config{}, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := kube.ParseKubeconfig([]byte(c.in), dir)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("error %v, want %s", err, c.err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// keys is a mapping of n distinct keys.
func keys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a%d:\n", i)
	}
	return b.String()
}

func FuzzParseKubeconfig(f *testing.F) {
	f.Add([]byte("current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: 'https://h'}}]\nusers: [{name: u, user: {token: t}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := kube.ParseKubeconfig(data, "/d")
		if err != nil && (c.Server != "" || c.Trust.Token != "") {
			t.Fatalf("a part of a configuration beside an error: %+v", c)
		}
		for _, p := range []string{c.Trust.CAFile, c.Trust.TokenFile, c.Trust.CertFile, c.Trust.KeyFile} {
			if p != "" && !strings.HasPrefix(p, "/") {
				t.Fatalf("relative path %q", p)
			}
		}
	})
}

func TestConnect(t *testing.T) {
	t.Parallel()
	env := map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
	c, err := kube.FromServiceAccount("/sa", func(k string) string { return env[k] })
	want := kube.Config{Server: "https://[fd00::1]:443", Trust: trust.Options{CAFile: "/sa/ca.crt", TokenFile: "/sa/token"}}
	if d := cmp.Diff(want, c); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	if _, err := kube.FromServiceAccount("/sa", func(string) string { return "" }); !errors.Is(err, kube.ErrNoCluster) {
		t.Errorf("outside of a pod: %v", err)
	}
	path := t.TempDir() + "/config"
	text := "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'https://h'}}]"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := kube.FromKubeconfig(path); err != nil || c.Server != "https://h" {
		t.Errorf("%+v %v", c, err)
	}
	if _, err := kube.FromKubeconfig(path + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, server := range []string{"", "h:6443", "ftp://h", "https://", "user:secret@10.0.0.1:6443", "https://user:secret@h", "https://user:secret@h:%zz"} {
		if _, err := kube.New(kube.Config{Server: server}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("server %q: %v", server, err)
		}
	}
	plain, err := kube.New(kube.Config{Server: "http://127.0.0.1:8080"})
	if err != nil || plain.Weakness() == "" {
		t.Errorf("%v: no TLS, and no word of it", err)
	}
}
