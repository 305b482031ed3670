package charttest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi/openapitest"
	"sigs.k8s.io/yaml"
)

// cluster is the API server's own admission of pods, with the policies of a
// rendered chart, and nothing else of a cluster.
type cluster struct {
	mutate   *mutating.Plugin
	validate *validating.Plugin
}

// specified is a client that knows the schema of the kinds.
type specified struct{ *fake.Clientset }

func (c specified) Discovery() discovery.DiscoveryInterfaces {
	return specifiedDiscovery{c.Clientset.Discovery()}
}

type specifiedDiscovery struct{ discovery.DiscoveryInterfaces }

func (specifiedDiscovery) OpenAPIV3() openapi.Client { return openapitest.NewEmbeddedFileClient() }

// newCluster starts admission with the policies among the objects.
func newCluster(t *testing.T, objects []runtime.Object) *cluster {
	t.Helper()
	known := []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"kubernetes.io/metadata.name": "shop"}}}}
	for _, object := range objects {
		switch object.(type) {
		case *admissionv1.MutatingAdmissionPolicy, *admissionv1.MutatingAdmissionPolicyBinding,
			*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding:
			known = append(known, object)
		}
	}
	var client kubernetes.Interface = specified{fake.NewClientset(known...)}
	factory := informers.NewSharedInformerFactory(client, 0)
	mapper := meta.NewDefaultRESTMapper(nil)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); factory.Shutdown() })

	mutate, err := mutating.NewPlugin(nil)
	if err != nil {
		t.Fatal(err)
	}
	validate, err := validating.NewPlugin(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{mutate, validate}
	mutate.SetEnabled(true)
	start(t, mutate.Plugin, client, factory, mapper, stop)
	start(t, validate.Plugin, client, factory, mapper, stop)
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	return c
}

// plugin is what both plugins want to have before they start.
type plugin interface {
	SetExternalKubeClientSet(kubernetes.Interface)
	SetExternalKubeInformerFactory(informers.SharedInformerFactory)
	SetRESTMapper(meta.RESTMapper)
	SetDynamicClient(dynamic.Interface)
	SetDrainedNotification(<-chan struct{})
	SetUnconditionalAuthorizer(authorizer.UnconditionalAuthorizer)
	ValidateInitialization() error
}

func start(t *testing.T, p plugin, client kubernetes.Interface, factory informers.SharedInformerFactory, mapper meta.RESTMapper, stop <-chan struct{}) {
	t.Helper()
	p.SetExternalKubeClientSet(client)
	p.SetExternalKubeInformerFactory(factory)
	p.SetRESTMapper(mapper)
	p.SetDynamicClient(dynamicfake.NewSimpleDynamicClient(scheme.Scheme))
	p.SetDrainedNotification(stop)
	p.SetUnconditionalAuthorizer(authorizerfactory.NewAlwaysAllowAuthorizer())
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
}

// kinds is the scheme of pods, with the conversion between equal types that
// the API server's own scheme has between its versions.
var kinds = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := corev1.AddToScheme(s); err != nil {
		panic(err)
	}
	if err := s.AddConversionFunc((*corev1.Pod)(nil), (*corev1.Pod)(nil), func(from, to any, _ conversion.Scope) error {
		from.(*corev1.Pod).DeepCopyInto(to.(*corev1.Pod))
		return nil
	}); err != nil {
		panic(err)
	}
	return s
}()

// admitted is what has become of a pod that was to be created.
type admitted struct {
	pod      *corev1.Pod // as it is after mutation
	denied   error       // nil: it is created
	warnings []string
	audit    map[string]string
}

// create has a pod created in the namespace shop: mutation, the same once more
// as after the mutation of somebody else, then validation.
func (c *cluster) create(t *testing.T, pod *corev1.Pod) admitted {
	t.Helper()
	result := admitted{pod: pod.DeepCopy(), audit: map[string]string{}}
	result.pod.Namespace = "shop"
	if result.denied = c.admit(t, result.pod); result.denied != nil {
		return result
	}
	again := result.pod.DeepCopy()
	if err := c.admit(t, again); err != nil {
		t.Errorf("second pass: %v", err)
	}
	if diff := cmp.Diff(result.pod, again); diff != "" {
		t.Errorf("a second pass changes the pod (-first +second):\n%s", diff)
	}
	ctx := warning.WithWarningRecorder(t.Context(), &result)
	result.denied = c.validate.Validate(ctx, audited{attributesOf(result.pod), result.audit}, admission.NewObjectInterfacesFromScheme(kinds))
	return result
}

// AddWarning makes a recorder of warnings of it.
func (a *admitted) AddWarning(_, text string) { a.warnings = append(a.warnings, text) }

// audited notes what would be in the audit log.
type audited struct {
	admission.Attributes
	audit map[string]string
}

func (a audited) AddAnnotation(key, value string) error {
	a.audit[key] = value
	return nil
}

// admit mutates the pod in place.
func (c *cluster) admit(t *testing.T, pod *corev1.Pod) error {
	t.Helper()
	for {
		err := c.mutate.Admit(t.Context(), attributesOf(pod), admission.NewObjectInterfacesFromScheme(kinds))
		// The plugin reads the schema of the kinds in the background.
		if !apierrors.IsServiceUnavailable(err) {
			pod.TypeMeta = metav1.TypeMeta{} // which decoding sets, and the server drops
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func attributesOf(pod *corev1.Pod) admission.Attributes {
	return admission.NewAttributesRecord(pod, nil, corev1.SchemeGroupVersion.WithKind("Pod"), pod.Namespace, pod.Name,
		corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "somebody"})
}

// decode reads manifests as strictly as the API server does with
// fieldValidation=Strict. What is of no kind of Kubernetes itself is left out
// and counted in others.
func decode(t *testing.T, documents [][]byte) (objects []runtime.Object, others map[string]int) {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	others = map[string]int{}
	for _, document := range documents {
		object, _, err := decoder.Decode(document, nil, nil)
		var foreign metav1.TypeMeta
		switch {
		case runtime.IsNotRegisteredError(err) && yaml.Unmarshal(document, &foreign) == nil:
			others[foreign.Kind]++
		case err != nil:
			t.Errorf("%v, in\n%s", err, document)
		default:
			objects = append(objects, object)
		}
	}
	return objects, others
}
