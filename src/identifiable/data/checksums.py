"""Where the real data sets are published, and the checksums their files must have."""

MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
CIFAR = "https://www.cs.toronto.edu/~kriz/"
SVHN = "http://ufldl.stanford.edu/housenumbers/"
SACHS = "https://raw.githubusercontent.com/cmu-phil/example-causal-datasets/"
# Fixed commits: the graph of the first one lacks the edge pka -> raf.
SACHS_DATA = f"{SACHS}4ba0565b8164b46063daf0f6fba6b94e5a99baf6/real/sachs/data/"
SACHS_GRAPH = f"{SACHS}5ba04e5435e46f4d637013f263fbf894b788895f/real/sachs/ground.truth/"
CIFAR_ARCHIVE = "cifar10/cifar-10-binary.tar.gz"
SACHS_RAW = "sachs/sachs.2005.continuous.txt"
SACHS_MIXED = "sachs/sachs.2005.continuous.discrete.experimental.mixed.maximum.2.txt"
SACHS_EDGES = "sachs/sachs.2005.ground.truth.graph.txt"

# set/file -> (the folder where it is published, checksum of the published file; SHA-256 where nothing else is said)
DOWNLOADS: dict[str, tuple[str, str]] = {
    "mnist/train-images-idx3-ubyte.gz": (MNIST, "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "mnist/train-labels-idx1-ubyte.gz": (MNIST, "md5:d53e105ee54ea40749a09fcbcd1e9432"),
    "mnist/t10k-images-idx3-ubyte.gz": (MNIST, "md5:9fb629c4189551a2d022fa330f9573f3"),
    "mnist/t10k-labels-idx1-ubyte.gz": (MNIST, "md5:ec29112dd5afa0611ce80d1b7f02629c"),
    "fashion_mnist/train-images-idx3-ubyte.gz": (FASHION, "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
    "fashion_mnist/train-labels-idx1-ubyte.gz": (FASHION, "md5:25c81989df183df01b3e8a0aad5dffbe"),
    "fashion_mnist/t10k-images-idx3-ubyte.gz": (FASHION, "md5:bef4ecab320f06d8554ea6380940ec79"),
    "fashion_mnist/t10k-labels-idx1-ubyte.gz": (FASHION, "md5:bb300cfdad3c16e7a12a480ee83cd310"),
    CIFAR_ARCHIVE: (CIFAR, "md5:c32a1d4ab5d03f1284b67883e8d87530"),
    "svhn/train_32x32.mat": (SVHN, "md5:e26dedcc434d2e4c54c9b2d4a06d8373"),
    "svhn/test_32x32.mat": (SVHN, "md5:eb5a983be6a315427106f1b164d9cef3"),
    SACHS_RAW: (SACHS_DATA, "a488589b0f021b2a261ff2c696a908c6823051b0d98693e0fa0e78bb12097063"),
    SACHS_MIXED: (SACHS_DATA, "c1c4b12bdbb2c5411f7410fa65792a3191500e4b5276df2f7d1bf35a41a42c71"),
    SACHS_EDGES: (SACHS_GRAPH, "2406ec0f9cd34bcbcd33fb74282386232330a630dba68c0f2d01a0d985a652b9"),
}

# (set/file, its length once decompressed) -> checksum of these bytes. Those of MNIST, Sachs, the first CIFAR-10 batch
# and the first 5,000 CIFAR-10 test images were computed from the files. The others were not at hand: they are the ones
# other libraries publish and compare with (for CIFAR-10 their first batch agrees with ours).
CONTENTS: dict[tuple[str, int], str] = {
    ("mnist/train-images-idx3-ubyte", 47040016): "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ("mnist/train-labels-idx1-ubyte", 60008): "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ("mnist/t10k-images-idx3-ubyte", 7840016): "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ("mnist/t10k-labels-idx1-ubyte", 10008): "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ("fashion_mnist/train-images-idx3-ubyte", 47040016): "md5:f4a8712d7a061bf5bd6d2ca38dc4d50a",
    ("fashion_mnist/train-labels-idx1-ubyte", 60008): "md5:9018921c3c673c538a1fc5bad174d6f9",
    ("fashion_mnist/t10k-images-idx3-ubyte", 7840016): "md5:8181f5470baa50b63fa0f6fddb340f0a",
    ("fashion_mnist/t10k-labels-idx1-ubyte", 10008): "md5:15d484375f8d13e6eb1aabb0c3f46965",
    ("cifar10/data_batch_1.bin", 30730000): "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    ("cifar10/data_batch_2.bin", 30730000): "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    ("cifar10/data_batch_3.bin", 30730000): "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    ("cifar10/data_batch_4.bin", 30730000): "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    ("cifar10/data_batch_5.bin", 30730000): "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    ("cifar10/test_batch.bin", 30730000): "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    ("cifar10/test_batch.bin", 15365000): "81bf0a9715c416403470647beac07e40417e39f3a92de01ec527fbc786ad796a",
    ("svhn/train_32x32.mat", 182040794): DOWNLOADS["svhn/train_32x32.mat"][1],
    ("svhn/test_32x32.mat", 64275384): DOWNLOADS["svhn/test_32x32.mat"][1],
    (SACHS_RAW, 661897): DOWNLOADS[SACHS_RAW][1],
    (SACHS_MIXED, 700171): DOWNLOADS[SACHS_MIXED][1],
    (SACHS_EDGES, 391): DOWNLOADS[SACHS_EDGES][1],
}
